"""Images through the proxy to an engine that takes them, and into the turn; refused where no model could see them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.engine.protocol import EngineInfo, PromptImage, Tokens
from openclaw_rl.shared.records import ImageSpan, Message, Sampling
from tests.fixtures.openclaw import tool
from tests.processes import Proxy
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service
from tests.shared.tiny_vision import data_url, picture, vision_folder

RED, BLUE = picture(96, 64, "red"), picture(64, 64, "blue")  # of 6 and 4 tokens


class SeeingEngine(ScriptedEngine):
    """Takes images, keeps what it was sent, and says how many tokens it made of the prompt: as many more as `off`."""

    off = 0
    sees = True
    asked: list[tuple[Sequence[int] | bytes, Sequence[PromptImage]]]

    async def generate(
        self, prompt_ids: Sequence[int] | bytes, sampling: Sampling, *, images: Sequence[Any] = (), **rest: Any
    ) -> AsyncIterator[Tokens]:
        self.asked = [*getattr(self, "asked", []), (prompt_ids, images)]
        ids = self._prompter.tokenizer.encode(self.says)
        yield Tokens([*ids, self._prompter.stop_ids[0]], [-1.0] * (len(ids) + 1), 0)
        yield Tokens([], [], 0, finish_reason="stop", prompt_tokens=len(prompt_ids) + self.off if images else 0)

    async def info(self) -> EngineInfo:
        return EngineInfo(0, (0,), "scripted", 4096, self._prompter.vocab_size, sees=self.sees)


class BlindEngine(SeeingEngine):
    """One that takes text only."""

    sees = False


class MistakenEngine(SeeingEngine):
    """Its image processor makes a token more of each prompt."""

    off = 1


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("vision"))


def shown(text: str, *files: bytes) -> Message:
    parts = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def sent(*messages: Message, **more: Any) -> dict[str, Any]:
    return {"model": "policy", "messages": list(messages), **more}


@pytest.mark.parametrize("stream", [False, True])
async def test_images_go_to_the_engine_and_into_the_turn(policy: Path, tmp_path: Path, stream: bool) -> None:
    async with scripted_service(policy, tmp_path, "Red.", engine=SeeingEngine) as (client, service, engine):
        asked = [{"role": "system", "content": "Be kind."}, shown("What is it?", RED)]
        first = await client.post("/v1/chat/completions", json=sent(*asked, stream=stream))
        assert first.status_code == 200, first.text
        more = [*asked, {"role": "assistant", "content": "Red."}, shown("And these?", BLUE, RED)]
        second = await client.post("/v1/chat/completions", json=sent(*more, stream=stream))
        one, two = [await service.journal.turn(reply.headers["x-openclaw-rl-turn"]) for reply in (first, second)]
        counted = await client.post("/v1/chat/completions/input_tokens", json=sent(*more))
    assert one is not None and two is not None and isinstance(engine, SeeingEngine)
    assert two.parent_turn_id == one.turn_id and not one.untrainable and not two.untrainable
    assert [span.end - span.start for span in two.image_spans] == [6, 4, 6]
    assert two.image_spans[:1] == one.image_spans and isinstance(two.image_spans[0], ImageSpan)
    [(_, seen), (ids, images)] = engine.asked
    assert list(ids) == list(two.prompt_ids) and [(image.start, image.end) for image in images] == [
        (span.start, span.end) for span in two.image_spans
    ]
    assert [image.url for image in (*seen, *images)] == [data_url(file) for file in (RED, RED, BLUE, RED)]
    assert [part["image_url"]["url"] for part in two.messages[3]["content"][:2]] == [data_url(BLUE), data_url(RED)]
    assert counted.json()["input_tokens"] == len(two.prompt_ids) == int(second.headers["x-openclaw-rl-prompt-tokens"])


async def test_a_screenshot_may_be_a_tool_s_result(policy: Path, tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {**shown("the screen", BLUE), "role": "tool", "tool_call_id": "c"}
    asked = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    async with scripted_service(policy, tmp_path, "Blue.", engine=SeeingEngine) as (client, service, engine):
        reply = await client.post("/v1/chat/completions", json=sent(*asked, tools=[tool("look", "value")]))
        turn = await service.journal.turn(reply.headers["x-openclaw-rl-turn"])
    assert turn is not None and isinstance(engine, SeeingEngine)
    assert [(one.end - one.start) for one in turn.image_spans] == [4] and len(engine.asked[0][1]) == 1


async def test_a_tool_that_has_to_be_called_is_chosen_with_the_images(policy: Path, tmp_path: Path) -> None:
    tools = [tool("look", "value"), tool("read", "value")]
    async with scripted_service(policy, tmp_path, ' "read"', engine=SeeingEngine) as (client, _, engine):
        body = sent(shown("What?", RED), tools=tools, tool_choice="required")
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    assert isinstance(engine, SeeingEngine)
    assert [len(images) for _, images in engine.asked] == [1, 1]


async def test_an_engine_that_reads_a_prompt_otherwise_makes_no_trainable_turn(policy: Path, tmp_path: Path) -> None:
    async with scripted_service(policy, tmp_path, "Red.", engine=MistakenEngine) as (client, service, _):
        reply = await client.post("/v1/chat/completions", json=sent(shown("What is it?", RED)))
        turn = await service.journal.turn(reply.headers["x-openclaw-rl-turn"])
    assert turn is not None
    assert f"{len(turn.prompt_ids) + 1} tokens of a prompt with images" in turn.untrainable


async def test_an_answer_that_holds_an_image_s_placeholder_is_not_trainable(policy: Path, tmp_path: Path) -> None:
    async with scripted_service(policy, tmp_path, "A <|image_pad|>.", engine=SeeingEngine) as (client, service, _):
        reply = await client.post("/v1/chat/completions", json=sent(shown("What is it?", RED)))
        turn = await service.journal.turn(reply.headers["x-openclaw-rl-turn"])
    assert turn is not None and "the placeholder of an image" in turn.untrainable


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("https://example.com/a.png", "not fetched"),
        (data_url(b"words"), "no image"),
        (data_url(picture(1, 500)), "too narrow"),
    ],
    ids=["url", "text", "narrow"],
)
async def test_a_wrong_image_is_the_client_s_error(policy: Path, tmp_path: Path, image: str, words: str) -> None:
    body = sent({"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]})
    async with scripted_service(policy, tmp_path, "Red.", engine=SeeingEngine) as (client, service, _):
        reply = await client.post("/v1/chat/completions", json=body)
        assert await service.journal.sessions(10) == []
    assert reply.status_code == 400 and words in reply.json()["error"]["message"]


async def test_a_large_image_is_taken(policy: Path, tmp_path: Path) -> None:
    noise = picture(700, 500, noise=os.urandom(700 * 500 * 3))
    async with scripted_service(policy, tmp_path, "Noise.", engine=SeeingEngine) as (client, _, _):
        body = sent(shown("What is it?", noise))
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


@pytest.mark.parametrize(("engine", "taken"), [(SeeingEngine, ["text", "image"]), (BlindEngine, ["text"])])
async def test_the_card_of_the_model_says_what_is_taken(
    policy: Path, tmp_path: Path, engine: type[ScriptedEngine], taken: list[str]
) -> None:
    async with scripted_service(policy, tmp_path, "Red.", engine=engine) as (client, service, _):
        await service.watch.refresh()
        assert (await client.get("/v1/models/policy")).json()["input_modalities"] == taken


async def test_an_engine_without_sight_is_named(policy: Path, tmp_path: Path) -> None:
    async with scripted_service(policy, tmp_path, "Red.", engine=BlindEngine) as (client, service, _):
        await service.watch.refresh()
        reply = await client.post("/v1/chat/completions", json=sent(shown("What is it?", RED)))
    assert reply.status_code == 400 and "the engine takes text only" in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "messages[0].content[0]"


IMAGE = data_url(RED).partition(",")[2]
IN_EACH_DIALECT = {
    "/v1/chat/completions": sent(shown("What is it?", RED)),
    "/v1/responses": {
        "model": "policy",
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(RED)}]}],
    },
    "/v1/messages": {
        "model": "policy",
        "max_tokens": 8,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
                    {"type": "text", "text": "What is it?"},
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("path", IN_EACH_DIALECT)
@pytest.mark.parametrize("stream", [False, True])
def test_the_embedded_policy_refuses_images_in_every_dialect(service: Proxy, path: str, stream: bool) -> None:
    with service.client() as client:
        reply = client.post(path, json={**IN_EACH_DIALECT[path], "stream": stream})
    assert reply.status_code == 400, reply.text
    assert "the model takes text only" in reply.text and "serve a model that can" in reply.text
