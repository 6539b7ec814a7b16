from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from cli.config_file import Change, ConfigFile, Place, applied, changes
from shared.errors import ConfigError

COMMENTED = """{
  // mine
  models: { providers: { other: { apiKey: 'secret' } } },
  agents: { defaults: { model: { primary: 'other/big', fallbacks: ['other/small'] } } },
}
"""
WANTED: dict[Place, Any] = {
    ("models", "providers", "ours"): {"baseUrl": "http://here", "models": [1]},
    ("agents", "defaults", "model", "primary"): "ours/policy",
}


def changed(path: Path, wanted: dict[Place, Any] = WANTED) -> ConfigFile:
    file = ConfigFile(path)
    content = file.read()
    file.write(content, changes(content, wanted))
    return file


def held(path: Path) -> Any:
    return json.loads(path.read_text())


def test_only_what_differs_is_a_change() -> None:
    content = {"a": {"b": 1, "c": None}}
    assert changes(content, {("a", "b"): 1}) == []
    assert changes(content, {("a", "b"): 2, ("a", "c"): 3, ("d", "e"): 4}) == [
        Change(place=("a", "b"), before=1, was_there=True, after=2),
        Change(place=("a", "c"), before=None, was_there=True, after=3),
        Change(place=("d", "e"), after=4),
    ]
    assert applied(content, changes(content, {("d", "e"): 4})) == {"a": {"b": 1, "c": None}, "d": {"e": 4}}
    assert content == {"a": {"b": 1, "c": None}}
    with pytest.raises(ConfigError, match=r"a\.b is no object"):
        changes(content, {("a", "b", "c"): 1})


def test_a_file_is_changed_at_its_places_and_put_back_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "openclaw.json"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    file = changed(path)
    content = held(path)
    assert content["models"]["providers"]["other"] == {"apiKey": "secret"}
    assert content["agents"]["defaults"]["model"] == {"primary": "ours/policy", "fallbacks": ["other/small"]}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(file.backup.stat().st_mode) == 0o640
    assert file.backup.read_text() == COMMENTED
    assert ConfigFile(path).undo() == []
    assert path.read_text() == COMMENTED
    assert [found.name for found in tmp_path.iterdir()] == ["openclaw.json"]


def test_comments_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text, told in ((COMMENTED, True), ('{"a": 1}', False)):
        path.write_text(text)
        file = ConfigFile(path)
        file.read()
        assert file.has_comments is told


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config.json"
    changed(path)
    assert held(path)["agents"]["defaults"]["model"]["primary"] == "ours/policy"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ConfigFile(path).undo() == []
    assert list(path.parent.iterdir()) == []


def test_changed_twice_it_goes_back_to_before_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    changed(path, {("models", "providers", "ours"): {"baseUrl": "http://there"}, ("new", "thing"): True})
    assert held(path)["models"]["providers"]["ours"] == {"baseUrl": "http://there"}
    ConfigFile(path).undo()
    assert path.read_text() == COMMENTED


def test_what_its_owner_changed_since_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    content = held(path)
    content["agents"]["defaults"]["model"]["primary"] = "other/medium"
    content["gateway"] = {"port": 1}
    path.write_text(json.dumps(content))
    assert ConfigFile(path).undo() == [("agents", "defaults", "model", "primary")]
    assert held(path) == {
        "models": {"providers": {"other": {"apiKey": "secret"}}},
        "agents": {"defaults": {"model": {"primary": "other/medium", "fallbacks": ["other/small"]}}},
        "gateway": {"port": 1},
    }
    with pytest.raises(ConfigError, match="was put back already"):
        ConfigFile(path).undo()


def test_a_file_that_changes_under_our_hands_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    file = ConfigFile(path)
    content = file.read()
    path.write_text('{"a": 1}')
    with pytest.raises(ConfigError, match="changed meanwhile"):
        file.write(content, changes(content, WANTED))
    assert path.read_text() == '{"a": 1}'
    assert [found.name for found in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("text", "told"), [("{a: ", "is no JSON"), ("[1]", "holds no object"), (b"\xff\xfe{}".decode("latin1"), "no JSON")]
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="latin1")
    with pytest.raises(ConfigError, match=told):
        ConfigFile(path).read()


def test_an_empty_file_is_an_empty_object(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("\n")
    changed(path)
    ConfigFile(path).undo()
    assert path.read_text() == "\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("{}")
    link.symlink_to(real)
    changed(link)
    assert link.is_symlink() and held(real)["models"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            changed(path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("comment", ["", "// mine\n"])
def test_characters_that_the_file_escapes_stay_what_they_are(tmp_path: Path, comment: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(comment + json.dumps({"icon": "🐈", "agents": {"icon": "é"}}))
    changed(path)
    found = held(path)
    assert (found["icon"], found["agents"]["icon"]) == ("🐈", "é")
