from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.connect.config_file import MISSING, ConfigFile, Difference, Place, differences, merge
from openclaw_rl.shared.errors import ConfigError

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


def changed(path: Path, wanted: dict[Place, Any] = WANTED) -> Path | None:
    """Write the wanted values; returns the backup."""
    file = ConfigFile(path)
    return file.write(merge(file.read(), wanted))


def held(path: Path) -> Any:
    return json.loads(path.read_text())


def test_values_are_merged_and_differences_found_at_their_places() -> None:
    content = {"a": {"b": 1, "c": None}}
    merged = merge(content, {("a", "b"): 2, ("a", "c"): 3, ("d", "e"): 4})
    assert merged == {"a": {"b": 2, "c": 3}, "d": {"e": 4}} and content == {"a": {"b": 1, "c": None}}
    assert list(differences(content, merged)) == [
        Difference(("a", "b"), 1, 2),
        Difference(("a", "c"), None, 3),
        Difference(("d",), MISSING, {"e": 4}),
    ]
    assert list(differences(merged, content))[-1] == Difference(("d",), {"e": 4}, MISSING)
    assert list(differences({"on": 1}, {"on": True})) and not list(differences(content, content))
    with pytest.raises(ConfigError, match=r"a\.b is no object but 1; mend or remove it first"):
        merge(content, {("a", "b", "c"): 1})


def test_a_file_is_changed_at_its_places_and_put_back_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "openclaw.json"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    backup = changed(path)
    assert backup is not None
    content = held(path)
    assert content["models"]["providers"]["other"] == {"apiKey": "secret"}
    assert content["agents"]["defaults"]["model"] == {"primary": "ours/policy", "fallbacks": ["other/small"]}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert backup.read_text() == COMMENTED
    assert ConfigFile(path).restore() == []
    assert path.read_text() == COMMENTED
    assert [found.name for found in tmp_path.iterdir()] == ["openclaw.json"]


def test_comments_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text, commented in ((COMMENTED, True), ('{"a": 1}', False)):
        path.write_text(text)
        file = ConfigFile(path)
        file.read()
        assert file.has_comments is commented


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config.json"
    changed(path)
    assert held(path)["agents"]["defaults"]["model"]["primary"] == "ours/policy"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ConfigFile(path).restore() == []
    assert list(path.parent.iterdir()) == []


def test_a_file_that_changes_under_our_hands_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    file = ConfigFile(path)
    content = file.read()
    path.write_text('{"a": 1}')
    with pytest.raises(ConfigError, match="changed meanwhile"):
        file.write(merge(content, WANTED))
    assert path.read_text() == '{"a": 1}'
    assert [found.name for found in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{a: ", "is no JSON"), ("[1]", "holds no object"), (b"\xff\xfe{}".decode("latin1"), "no JSON")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="latin1")
    with pytest.raises(ConfigError, match=message):
        ConfigFile(path).read()


def test_an_empty_file_is_an_empty_object(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for empty in ("", "\n"):
        path.write_text(empty)
        file = ConfigFile(path)
        assert file.read() == {} and not file.has_comments
        changed(path)
        ConfigFile(path).restore()
        assert path.read_text() == empty


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("{}")
    link.symlink_to(real)
    changed(link)
    assert link.is_symlink() and held(real)["models"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
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


OTHER: dict[Place, Any] = {("models", "providers", "ours"): {"baseUrl": "http://there"}, ("new", "thing"): True}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def edited(path: Path, **added: Any) -> None:
    """Add settings to the file, as its owner may between two runs."""
    path.write_text(json.dumps(held(path) | added))


def test_changed_twice_it_goes_back_to_before_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    assert changed(path) == changed(path, OTHER)
    assert held(path)["models"]["providers"]["ours"] == {"baseUrl": "http://there"}
    assert ConfigFile(path).restore() == []
    assert path.read_text() == COMMENTED and names(tmp_path) == {"c.json"}


@pytest.mark.parametrize("before", [COMMENTED, None])
def test_a_file_that_was_changed_since_is_left_alone_and_the_difference_shown(
    tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "c.json"
    if before is not None:
        path.write_text(before)
    changed(path)
    edited(path, gateway={"port": 1})
    since = path.read_text()
    found = ConfigFile(path).restore()
    assert Difference(("gateway",), {"port": 1}, MISSING) in found
    if before is not None:
        assert Difference(("agents", "defaults", "model", "primary"), "ours/policy", "other/big") in found
    assert path.read_text() == since
    assert ConfigFile(path).restore() == found
    assert ConfigFile(path).restore(force=True) == []
    assert (path.read_text() if path.exists() else None) == before
    (copy,) = names(tmp_path) - {"c.json"}
    assert (tmp_path / copy).read_text() == since
    with pytest.raises(ConfigError, match="was put back already"):
        ConfigFile(path).restore()


def test_another_layout_of_the_same_values_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    path.write_text(json.dumps(held(path), sort_keys=True))
    assert ConfigFile(path).restore() == []
    assert path.read_text() == COMMENTED


@pytest.mark.parametrize("edit", ['{"channels": {}}', "{} // a comment\n"])
def test_an_edit_between_two_changes_is_never_lost(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    backup = changed(path)
    path.write_text(edit)
    assert changed(path, OTHER) == backup
    assert (tmp_path / "c.json.before-openclaw-rl.2").read_text() == edit
    assert ConfigFile(path).restore() != [], "the backup is older than the edit"
    ConfigFile(path).restore(force=True)
    assert path.read_text() == "{}"
    kept = [(tmp_path / f"c.json.before-openclaw-rl.{number}").read_text() for number in (2, 3)]
    assert kept[0] == edit and "http://there" in kept[1]


def test_a_file_that_its_owner_put_back_by_hand_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    path.write_text(COMMENTED)
    assert ConfigFile(path).restore() == []
    assert names(tmp_path) == {"c.json"}


def test_an_undo_without_the_file_or_its_backup_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    backup = changed(path)
    assert backup is not None
    path.unlink()
    with pytest.raises(ConfigError, match=f"is gone, so nothing was put back. As it was it is still {backup}"):
        ConfigFile(path).restore()
    backup.rename(path)
    with pytest.raises(ConfigError, match=r"mend .*c\.json by hand, then delete .*c\.json\.openclaw-rl\.json"):
        ConfigFile(path).restore()
    assert path.read_text() == COMMENTED


def test_a_file_that_was_lost_and_is_made_again_leaves_the_backup_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    first = changed(path)
    path.unlink()
    assert changed(path) is None
    assert ConfigFile(path).restore() == []
    assert first is not None and names(tmp_path) == {first.name}
    path.write_text('{"a": 1}')
    again = changed(path)
    assert again is not None and again.read_text() == '{"a": 1}' and first.read_text() == COMMENTED


def test_a_file_of_ours_that_is_gone_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    changed(path)
    path.unlink()
    assert ConfigFile(path).restore() == []
    assert names(tmp_path) == set()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_stays_as_private_as_it_is(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    path.chmod(mode)
    backup = changed(path)
    assert backup is not None
    edited(path, more=1)
    changed(path, OTHER)
    files = [path, backup, tmp_path / "c.json.openclaw-rl.json"]
    assert {stat.S_IMODE(found.stat().st_mode) for found in files} == {mode}
    ConfigFile(path).restore(force=True)
    assert {stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()} == {mode}
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_stays_its_owners_when_root_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    os.chown(path, 1234, 1234)
    changed(path)
    assert path.stat().st_uid == path.stat().st_gid == 1234


def test_a_path_that_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match=r"loop\.json (leads to no file|cannot be read)"):
        ConfigFile(loop).read()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory; nothing was changed"):
        ConfigFile(tmp_path).read()
    plain = tmp_path / "plain"
    plain.write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        ConfigFile(plain / "c.json").read()
    with pytest.raises(ConfigError, match="is no JSON"):
        deep = tmp_path / "deep.json"
        deep.write_text('{"a": ' + "[" * 100_000)
        ConfigFile(deep).read()


def test_a_backup_that_cannot_be_read_stops_the_undo(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    backup = changed(path)
    assert backup is not None
    backup.unlink()
    backup.mkdir()
    ours = path.read_text()
    with pytest.raises(ConfigError, match="before-openclaw-rl cannot be read: Is a directory"):
        ConfigFile(path).restore()
    assert path.read_text() == ours
