from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.connect.config_file import Change, ConfigFile, Place, Record, applied, changes, undone
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
    for empty in ("", "\n"):
        path.write_text(empty)
        assert not changed(path).has_comments
        ConfigFile(path).undo()
        assert path.read_text() == empty


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


OTHER: dict[Place, Any] = {("models", "providers", "ours"): {"baseUrl": "http://there"}, ("new", "thing"): True}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def edited(path: Path, **added: Any) -> None:
    """What an owner does between: adds to what is there."""
    path.write_text(json.dumps(held(path) | added))


@pytest.mark.parametrize("before", [COMMENTED, "{}", None])
def test_what_was_added_between_two_changes_stays(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "c.json"
    if before is not None:
        path.write_text(before)
    changed(path)
    edited(path, channels={"telegram": {}})
    changed(path, OTHER)
    assert ConfigFile(path).undo() == []
    assert held(path)["channels"] == {"telegram": {}}
    assert "ours" not in path.read_text() and "new" not in held(path)
    kept = {"c.json.before-openclaw-rl"} if before == COMMENTED else set()
    assert names(tmp_path) == {"c.json"} | kept


def test_a_value_that_was_chosen_between_two_changes_is_the_one_to_go_back_to(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"model": "first"}')
    changed(path, {("model",): "ours"})
    edited(path, model="second")
    changed(path, {("model",): "ours again"})
    changed(path, {("model",): "ours at last"})
    ConfigFile(path).undo()
    assert held(path) == {"model": "second"}


def test_a_change_within_one_of_ours_is_taken_back_first(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    changed(path, {("models", "providers", "ours", "baseUrl"): "http://there"})
    assert ConfigFile(path).undo() == []
    assert path.read_text() == COMMENTED


def test_objects_that_were_empty_before_stay(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    before: dict[str, Any] = {"models": {"providers": {}}, "agents": {}, "other": {}}
    path.write_text(json.dumps(before))
    changed(path)
    edited(path, meta=1)
    changed(path, OTHER)
    assert ConfigFile(path).undo() == []
    assert held(path) == before | {"meta": 1}


def test_true_is_not_one(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"count": 1}')
    changed(path, {("on",): True})
    edited(path, count=True)
    assert ConfigFile(path).undo() == [] and held(path) == {"count": True}
    assert changes({"on": 1}, {("on",): True})


def test_a_place_that_is_no_object_any_more_is_left(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    edited(path, agents="mine")
    assert ConfigFile(path).undo() == [("agents", "defaults", "model", "primary")]
    assert held(path)["agents"] == "mine"
    assert (tmp_path / "c.json.before-openclaw-rl").read_text() == COMMENTED


def test_an_undo_without_the_file_keeps_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    file = changed(path)
    path.unlink()
    with pytest.raises(ConfigError, match=f"is gone, so nothing was put back.*{file.backup}: copy that to {path}"):
        ConfigFile(path).undo()
    assert file.backup.read_text() == COMMENTED
    file.backup.unlink()
    with pytest.raises(ConfigError, match=r"and so is its backup; delete .*c\.json\.openclaw-rl\.json"):
        ConfigFile(path).undo()


def test_a_file_of_ours_that_is_gone_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    changed(path)
    path.unlink()
    assert ConfigFile(path).undo() == []
    assert names(tmp_path) == set()


def test_a_file_that_was_lost_and_is_made_again_leaves_the_backup_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    changed(path)
    path.unlink()
    changed(path)
    assert ConfigFile(path).undo() == []
    assert names(tmp_path) == {"c.json.before-openclaw-rl"}
    path.write_text('{"a": 1}')
    file = changed(path)
    assert file.backup.read_text() == '{"a": 1}'
    assert [kept.read_text() for kept in file.kept] == [COMMENTED]


def test_without_the_backup_the_record_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(COMMENTED)
    file = changed(path)
    file.backup.unlink()
    assert ConfigFile(path).undo() == []
    assert held(path) == {
        "models": {"providers": {"other": {"apiKey": "secret"}}},
        "agents": {"defaults": {"model": {"primary": "other/big", "fallbacks": ["other/small"]}}},
    }
    assert names(tmp_path) == {"c.json"}


def test_comments_that_were_written_since_are_kept_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    changed(path)
    commented = "// mine\n" + path.read_text()
    path.write_text(commented)
    again = changed(path, OTHER)
    assert [kept.read_text() for kept in again.kept] == [commented]
    path.write_text("// later\n" + path.read_text())
    file = ConfigFile(path)
    file.undo()
    assert path.read_text() == "{}"
    assert [kept.name for kept in file.kept] == ["c.json.before-openclaw-rl.3"]
    assert file.kept[0].read_text().startswith("// later")


def test_a_record_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"a": {"b": "ours", "c": 1}, "d": {"e": {"f": "ours"}}}')
    change = {"place": ["a", "b"], "before": "x", "was_there": True, "after": "ours"}
    new = {"place": ["d", "e", "f"], "before": None, "was_there": False, "after": "ours"}
    record = tmp_path / "c.json.openclaw-rl.json"
    record.write_text(json.dumps({"changes": [change, new], "written": "0" * 64, "created": False}))
    (tmp_path / "c.json.before-openclaw-rl").write_text('{ a: { b: "x", c: 1 } }')
    assert ConfigFile(path).undo() == []
    assert path.read_text() == '{ a: { b: "x", c: 1 } }'
    assert names(tmp_path) == {"c.json"}


def test_what_is_as_it_was_already_is_not_told_as_changed() -> None:
    change = Change(place=("a",), before=1, was_there=True, after=2)
    gone = Change(place=("b", "c"), after=2)
    assert undone({"a": 1}, Record(changes=[change, gone])) == ({"a": 1}, [])


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_stays_as_private_as_it_is(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    path.chmod(mode)
    file = changed(path)
    edited(path, more=1)
    changed(path, OTHER)
    beside = [path, file.backup, tmp_path / "c.json.openclaw-rl.json"]
    assert {stat.S_IMODE(found.stat().st_mode) for found in beside} == {mode}
    ConfigFile(path).undo()
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_stays_its_owners_when_root_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    os.chown(path, 1234, 1234)
    changed(path)
    assert path.stat().st_uid == path.stat().st_gid == 1234


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
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
    file = changed(path)
    file.backup.unlink()
    file.backup.mkdir()
    ours = path.read_text()
    with pytest.raises(ConfigError, match="before-openclaw-rl cannot be read: Is a directory"):
        ConfigFile(path).undo()
    assert path.read_text() == ours
