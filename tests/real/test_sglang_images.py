"""A small Qwen3-VL of random weights on the real SGLang, behind the proxy: what a picture's turn holds is what SGLang
computed on, and what transformers computes again from the turn alone.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from openclaw_rl.learner.audit import Auditor
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import file_of, images_in, placed_in
from openclaw_rl.shared.messages.normalize import normalize_messages
from openclaw_rl.shared.records import Message, Sampling, Turn
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.clients.engine_log import LoggedEngine, run_logged_engine
from tests.processes import Engine, Proxy, run_proxy
from tests.rigs.sglang_cpu import run_sglang
from tests.shared.tiny_vision import MERGE, PATCH, PIXELS, data_url, picture, vision_folder
from tests.trainer_local.serving import close_to, collect

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RED, BLUE = picture(96, 64, "red"), picture(128, 128, "blue")
LARGE = picture(700, 500, "green", "JPEG")  # has to be made smaller


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("vision"), weights=True)


@pytest.fixture(scope="module")
def sglang(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with run_sglang(policy, tmp_path_factory.mktemp("sglang")) as server:
        yield server


@pytest.fixture(scope="module")
def log(sglang: Engine) -> Iterator[tuple[Engine, LoggedEngine]]:
    with run_logged_engine(sglang) as logged:
        yield logged


@pytest.fixture(scope="module")
def proxy(log: tuple[Engine, LoggedEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with run_proxy(log[0], tmp_path_factory.mktemp("proxy")) as running:
        yield running


class Reference:
    """The forward that a trainer would make: transformers' model and image processor, and nothing but the turn."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self._model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self._processor = Qwen2VLImageProcessorPil(
            patch_size=PATCH, merge_size=MERGE, size=PIXELS, image_mean=[0.5] * 3, image_std=[0.5] * 3
        )

    def logprobs(self, turn: Turn, temperature: float = 1.0) -> list[float]:
        """Of the turn's response, from its prompt ids and its images."""
        ids = torch.tensor([[*turn.prompt_ids, *turn.response_ids]])
        files = [
            Image.open(io.BytesIO(file_of(part["image_url"]["url"])[1])).convert("RGB")
            for part in images_in(turn.messages)
        ]
        seen: dict[str, Any] = {}
        if files:
            seen = dict(self._processor(images=files, return_tensors="pt"))
            kinds = torch.zeros_like(ids)
            for span in turn.image_spans:
                kinds[0, span.start : span.end] = 1
            seen["mm_token_type_ids"] = kinds
        with torch.no_grad():
            logits = self._model(input_ids=ids, **seen).logits[0] / temperature
        rows = logits.log_softmax(dim=-1)[len(turn.prompt_ids) - 1 : -1]
        return [float(row[token]) for row, token in zip(rows, turn.response_ids, strict=True)]


@pytest.fixture(scope="module")
def reference(policy: Path) -> Reference:
    return Reference(policy)


def shown(text: str, *files: bytes) -> Message:
    parts = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def recorded(proxy: Proxy, turn_id: str) -> Turn:
    turn = proxy.journal().turn(turn_id)
    assert turn is not None
    return turn


def answered(proxy: Proxy, messages: list[Message], **body: Any) -> Turn:
    """The turn of a chat. Random weights say anything: an answer with an image's placeholder is asked for again."""
    for _ in range(5):
        reply = proxy.chat(messages, max_tokens=16, **body)
        assert reply.status_code == 200, reply.text
        turn = recorded(proxy, reply.headers["x-openclaw-rl-turn"])
        if "placeholder" not in turn.untrainable:
            return turn
    raise AssertionError("the placeholder again and again")


def logged(log: tuple[Engine, LoggedEngine], turn: Turn) -> bool:
    """Return whether the turn holds SGLang's answer."""
    entry = log[1].log[turn.turn_id.removeprefix("turn_")]
    return list(turn.response_ids) == entry.ids and close_to(turn.logprobs, entry.logprobs, 1e-6)


async def rescored(sglang: Engine, turn: Turn) -> list[float]:
    """The turn's logprobs as SGLang finds them again, from nothing that it kept."""
    engine = SglangEngine(sglang.url)
    try:
        images = placed_in(turn.messages, turn.image_spans)
        prompt, response = list(turn.prompt_ids), list(turn.response_ids)
        return list((await engine.score(prompt, response, fresh=True, images=images)).logprobs)
    finally:
        await engine.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_images_is_recorded_as_it_was_computed(
    proxy: Proxy, log: tuple[Engine, LoggedEngine], sglang: Engine, reference: Reference, stream: bool
) -> None:
    asked = [{"role": "system", "content": "Be kind."}, shown(f"What is it? {stream}", RED)]
    one = answered(proxy, asked, stream=stream)
    said = {"role": "assistant", "content": one.answer["content"]}
    two = answered(proxy, [*asked, said, shown("And these?", BLUE, RED)], stream=stream)
    assert two.parent_turn_id == one.turn_id and one.parent_turn_id is None
    for turn, tokens in ((one, [6]), (two, [6, 16, 6])):
        assert turn.status == "complete" and not turn.untrainable
        assert [span.end - span.start for span in turn.image_spans] == tokens
        assert logged(log, turn)
        assert close_to(turn.logprobs, await rescored(sglang, turn))
        assert close_to(turn.logprobs, reference.logprobs(turn), 2e-4)
    blue = normalize_messages([shown(f"What is it? {stream}", picture(96, 64, "blue"))], blind="")
    assert not close_to(
        reference.logprobs(one), reference.logprobs(replace(one, messages=[one.messages[0], *blue])), 1e-3
    )


def test_an_image_is_stored_once(proxy: Proxy) -> None:
    with sqlite3.connect(proxy.settings.serve.journal_path) as connection:
        bodies = [bytes(body)[1:] for (body,) in connection.execute("SELECT body FROM blobs")]
    connection.close()
    assert bodies.count(RED) == bodies.count(BLUE) == 1


def unusual() -> dict[str, bytes]:
    """Images that have to be made smaller or larger, or that are not plain pixels."""
    plain = Image.new("RGB", (300, 120), "green")
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: a quarter turn
    kinds: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "transparent": (Image.new("RGBA", (300, 120), (255, 0, 0, 40)), {"format": "PNG"}),
        "turned": (plain, {"format": "JPEG", "exif": turned}),
        "palette": (plain.convert("P"), {"format": "PNG"}),
        "grey": (plain.convert("L"), {"format": "JPEG"}),
        "moving": (plain, {"format": "GIF", "save_all": True, "append_images": [plain.rotate(180)]}),
        "webp": (plain, {"format": "WEBP"}),
    }
    files = {"large": LARGE, "dot": picture(1, 1), "narrow": picture(1000, 5)}
    for name, (image, how) in kinds.items():
        file = io.BytesIO()
        image.save(file, **how)
        files[name] = file.getvalue()
    return files


@pytest.mark.parametrize("name", unusual())
async def test_an_unusual_image_is_counted_as_sglang_does(
    proxy: Proxy, log: tuple[Engine, LoggedEngine], sglang: Engine, name: str
) -> None:
    turn = answered(proxy, [shown("What is it?", unusual()[name])])
    assert not turn.untrainable and logged(log, turn)
    assert close_to(turn.logprobs, await rescored(sglang, turn))


async def test_sglang_says_when_it_reads_a_prompt_otherwise(proxy: Proxy, sglang: Engine) -> None:
    turn = answered(proxy, [shown("What?", RED)])
    (image,) = placed_in(turn.messages, turn.image_spans)
    engine = SglangEngine(sglang.url)
    longer = type(image)(image.url, image.start, image.end + 1)
    ids = [*turn.prompt_ids[: image.end], turn.prompt_ids[image.start], *turn.prompt_ids[image.end :]]
    with pytest.raises(EngineError, match="image processing"):
        await engine.score(ids, list(turn.response_ids), images=[longer])
    answer = await collect(engine.generate(ids, Sampling(max_tokens=2), images=[longer]))
    assert answer.last.prompt_tokens == len(turn.prompt_ids)
    await engine.close()


def test_a_file_that_breaks_off_is_the_client_s_error(proxy: Proxy) -> None:
    reply = proxy.chat([shown("What?", LARGE[: len(LARGE) // 2])])
    assert reply.status_code == 400 and "decode image" in reply.json()["error"]["message"]


def test_images_come_in_every_dialect(proxy: Proxy, log: tuple[Engine, LoggedEngine], reference: Reference) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": data_url(RED).partition(",")[2]}
    block: dict[str, Any] = {"type": "image", "source": source}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "It is:"}, block]}
    tools = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
    bodies: dict[str, list[dict[str, Any]]] = {
        "/v1/messages": [
            {"messages": [{"role": "user", "content": [block, {"type": "text", "text": "In messages?"}]}]},
            {
                "tools": tools,
                "messages": [
                    {"role": "user", "content": "Look."},
                    {"role": "assistant", "content": [use]},
                    {"role": "user", "content": [result]},
                ],
            },
        ],
        "/v1/responses": [
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_image", "image_url": data_url(RED)},
                            {"type": "input_text", "text": "In responses?"},
                        ],
                    }
                ]
            }
        ],
    }
    with proxy.client() as client:
        for path, asked in bodies.items():
            limit = {"max_tokens": 12} if path == "/v1/messages" else {"max_output_tokens": 12}
            for body in asked:
                for stream in (False, True):
                    sent = {"model": "policy", "stream": stream, **limit, **body}
                    reply = client.post(path, json=sent)
                    assert reply.status_code == 200, reply.text
                    turn = recorded(proxy, newest(proxy))
                    assert turn.dialect == path.removeprefix("/v1/")
                    assert [span.end - span.start for span in turn.image_spans] == [6]
                    assert logged(log, turn)
                    if not turn.untrainable:  # it would be if it held the placeholder
                        assert close_to(turn.logprobs, reference.logprobs(turn), 2e-4)
        counted = client.post("/v1/messages/count_tokens", json={"model": "policy", **bodies["/v1/messages"][0]})
    assert json.loads(counted.text)["input_tokens"] > 6


def newest(proxy: Proxy) -> str:
    """The id of the turn that was recorded last."""
    with sqlite3.connect(proxy.settings.serve.journal_path) as connection:
        (turn_id,) = connection.execute("SELECT turn_id FROM turns ORDER BY id DESC LIMIT 1").fetchone()
    connection.close()
    return str(turn_id)


async def test_turns_with_images_are_audited(proxy: Proxy, sglang: Engine, tmp_path: Path) -> None:
    turn = answered(proxy, [shown("What do you see?", RED, BLUE)])
    journal = AsyncJournal(tmp_path / "journal.db")
    engine = SglangEngine(sglang.url)
    await journal.record_turn(turn)
    auditor = Auditor(journal, engine, proxy.settings, Progress())
    assert await auditor.once() == 1
    audit = await journal.audit(turn.turn_id)
    await engine.close()
    await journal.close()
    assert audit is not None and audit.verdict == "aligned", audit
    assert len(audit.differences) == len(turn.response_ids)
