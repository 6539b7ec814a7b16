"""`openclaw-rl keys` makes, lists and revokes keys of a data folder."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from openclaw_rl.cli.main import app
from openclaw_rl.shared.api_keys import KeyFile


def keys(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments, "--data", str(data)])


def test_a_key_is_printed_once_listed_without_it_and_revoked(tmp_path: Path) -> None:
    key = keys(tmp_path, "create", "bob").stdout.strip()
    assert KeyFile(tmp_path).find(key) is not None
    assert key not in keys(tmp_path).stdout
    (row,) = json.loads(keys(tmp_path, "list", "--json").stdout)["keys"]
    assert (row["name"], row["scopes"]) == ("bob", ["chat", "feedback"]) and "digest" not in row
    assert "revoked" in keys(tmp_path, "revoke", "bob").stdout
    assert KeyFile(tmp_path).find(key) is None
    assert "No further keys" in keys(tmp_path).stdout


def test_scopes_are_chosen(tmp_path: Path) -> None:
    made = json.loads(keys(tmp_path, "create", "ops", "--scope", "admin", "--scope", "read", "--json").stdout)
    assert made["scopes"] == ["read", "admin"]
    assert KeyFile(tmp_path).find(made["key"]) is not None


def test_keys_of_one_owner(tmp_path: Path) -> None:
    made = [json.loads(keys(tmp_path, "create", name, *more, "--json").stdout) for name, *more in (
        ("bob",), ("phone", "--owner", "bob"), ("ci", "--owner", "service"),
    )]  # fmt: skip
    stored = [KeyFile(tmp_path).find(one["key"]) for one in made]
    assert [one.owned_by for one in stored if one is not None] == ["bob", "bob", ""]
    listed = json.loads(keys(tmp_path, "list", "--json").stdout)["keys"]
    assert [one["owner"] for one in listed] == [one["owner"] for one in made] == ["bob", "bob", "service"]


def test_impossible_changes_are_refused_with_the_reason(tmp_path: Path) -> None:
    for arguments, message in (
        (["create"], "needs the name"),
        (["create", "x", "--scope", "all"], "scope 'all' is unknown"),
        (["create", "x", "--owner", "a@@b"], "'a@@b' is no name for a key or an owner"),
        (["create", "service"], "means the service itself"),
        (["revoke", "x"], "no key 'x'; there are: none"),
    ):
        assert message in str(keys(tmp_path, *arguments).exception)
