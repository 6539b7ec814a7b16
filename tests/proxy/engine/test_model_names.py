"""Clients ask for the policy by names of their own, in every dialect."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.shared.errors import BadRequest, NotFound
from tests.processes import Engine, Proxy, run_proxy

ALIASES = "claude-*=policy, gpt-4o=policy@0, gone=policy@9"
RULE = '[{"name": "small", "kind": "side", "model": "haiku"}]'


@pytest.fixture(scope="module")
def aliased(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("aliased")
    with run_proxy(engine_server, folder, model_aliases=ALIASES, classification_rules=RULE) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def strict(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("strict")
    with run_proxy(engine_server, folder, model_aliases=ALIASES, strict_model_names=True) as proxy:
        yield proxy


def _ask(proxy: Proxy, path: str, model: str) -> httpx.Response:
    words = [{"role": "user", "content": f"Hello on {path} for {model}"}]
    body = {"model": model, **({"input": words} if "responses" in path else {"messages": words})}
    if not path.endswith("tokens"):
        body["max_output_tokens" if "responses" in path else "max_tokens"] = 4
    with proxy.client() as client:
        return client.post(path, json=body)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_every_dialect_answers_under_the_name_that_was_asked_for(aliased: Proxy, path: str) -> None:
    for model in ("claude-opus-5-5", "gpt-4o", "policy", "policy@0", "qwen3-4b-lora", "org/other@2", "größe: ü"):
        response = _ask(aliased, path, model)
        assert response.status_code == 200, response.text
        assert response.json()["model"] == model


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_rules_see_the_name_that_was_asked_for(aliased: Proxy, path: str) -> None:
    kinds = [
        _ask(aliased, path, f"claude-{size}-5").headers["x-openclaw-rl-kind"] for size in ("haiku", "sonnet", "opus")
    ]
    assert kinds == ["side", "main", "main"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
    ],
)
def test_strict_names_refuse_another_one_and_say_what_to_set(strict: Proxy, path: str) -> None:
    response = _ask(strict, path, "gpt-5")
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "gpt-5=policy" in error["message"] and "model_aliases" in error["message"]
    assert "strict_model_names" in error["message"]


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_prompts_are_counted_under_any_name(aliased: Proxy, path: str) -> None:
    counted = [_ask(aliased, path, model) for model in ("claude-opus-5-5", "gpt-4o", "qwen3-4b")]
    assert all(response.json()["input_tokens"] > 0 for response in counted)


def test_an_alias_of_a_version_that_is_not_there(aliased: Proxy) -> None:
    response = _ask(aliased, "/v1/chat/completions", "gone")
    assert response.status_code == 404 and "'policy@9' does not exist" in response.json()["error"]["message"]


def test_listed_are_aliases_that_are_whole_names_and_can_be_asked_for(aliased: Proxy) -> None:
    with aliased.client() as client:
        cards = {card["id"]: card["root"] for card in client.get("/v1/models").json()["data"]}
        own = {name: root for name, root in cards.items() if name.startswith("policy")}  # others load versions, too
        assert cards == own | {"gpt-4o": "policy@0"}
        assert own.items() >= {"policy": "policy", "policy@0": "policy@0"}.items()
        found = client.get("/v1/models/claude-opus-5-5").json()
        assert (found["id"], found["root"]) == ("claude-opus-5-5", "policy")
        assert client.get("/v1/models/gpt-4o").json()["root"] == "policy@0"
        assert client.get("/v1/models/gone").status_code == 404
        other = client.get("/v1/models/org/qwen3-4b").json()
        assert (other["id"], other["root"]) == ("org/qwen3-4b", "policy")
        assert "org/qwen3-4b" not in {card["id"] for card in client.get("/v1/models").json()["data"]}


def test_strict_names_are_shown_one_by_one_too(strict: Proxy) -> None:
    with strict.client() as client:
        assert client.get("/v1/models/claude-opus-5-5").json()["root"] == "policy"
        assert client.get("/v1/models/gpt-5").status_code == 404


def test_a_name_of_ours_keeps_its_meaning_where_any_name_is_answered(aliased: Proxy) -> None:
    for model in ("policy@9", "policy@", "policy@x", "gpt-4o@1", "x" * 201):
        response = _ask(aliased, "/v1/chat/completions", model)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found"), model


def test_a_whole_name_comes_first_and_then_the_longest_pattern() -> None:
    names = ModelNames("mine", "*=mine, claude-*=mine@1, claude-haiku-*=mine@2, claude-haiku-9=mine@3, *mini=mine@4")
    assert [
        names.read(model)[1] for model in ("gpt-5", "claude-x", "claude-haiku-4-5", "claude-haiku-9", "gpt-mini")
    ] == [
        None,
        1,
        2,
        3,
        4,
    ]
    assert names.read("mine@7") == ("mine@7", 7)
    for model in ("mine@x", "mine@", "x" * 300):
        with pytest.raises(NotFound):
            names.read(model)


def test_dots_and_brackets_of_a_pattern_are_themselves() -> None:
    names = ModelNames("policy", "gpt-4.1*=policy, a[1m]*=policy", strict=True)
    assert names.read("a[1m]x") == ("a[1m]x", None)
    for model in ("gpt-4x1", "a1"):
        with pytest.raises(NotFound):
            names.read(model)


def test_any_other_name_is_the_live_version_and_is_answered_under_itself() -> None:
    names = ModelNames("mine", "old=mine@2")
    assert [names.read(model) for model in ("qwen3-4b", "qwen3-4b@3", "old", "mine@3", "x" * 200)] == [
        ("qwen3-4b", None),
        ("qwen3-4b@3", None),
        ("old", 2),
        ("mine@3", 3),
        ("x" * 200, None),
    ]
    assert names.read("") == names.read(None) == ("mine", None)
    with pytest.raises(NotFound, match="at most 200 characters"):
        names.read("x" * 201)
    with pytest.raises(NotFound, match=r"'old@3' does not exist.*'mine@N'"):
        names.read("old@3")
    with pytest.raises(BadRequest, match="must be a string"):
        names.read(7)
    with pytest.raises(NotFound):
        ModelNames("mine", strict=True).read("")
