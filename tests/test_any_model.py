"""Any Hugging Face causal model by one setting: folders with random weights, served, talked to and trained by the real
parts."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from openclaw_rl.evaluation.service import own_service
from openclaw_rl.shared.chat_client import ChatClient
from tests.processes import Engine, Proxy, run_engine, run_proxy
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder

pytestmark = pytest.mark.slow

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many baskets?"}]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def model_folder(folder: Path, kind: str, template: str = CHATML) -> Path:
    """A model of about 50,000 random parameters with a tokenizer of its own."""
    torch.manual_seed(3)
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    size, end = tokenizer.get_vocab_size(), tokenizer.token_to_id("<|im_end|>")
    model: PreTrainedModel
    if kind == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=size, n_embd=32, n_layer=2, n_head=2, n_positions=1024, bos_token_id=None, eos_token_id=end
            )
        )
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=size,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=1024,
                bos_token_id=None,
                eos_token_id=end,
            )
        )
    model.save_pretrained(folder)
    return write_folder(folder, tokenizer, template=template, eos="<|im_end|>")


def streamed(proxy: Proxy, **body: Any) -> tuple[str, str, str]:
    """Text, finish reason and last line of a streamed answer."""
    sent = {"model": "policy", "messages": ASKED, "max_tokens": 8, "stream": True, **body}
    text, finish, last = "", "", ""
    with proxy.client() as client, client.stream("POST", "/v1/chat/completions", json=sent) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            last = line
            if line == "data: [DONE]":
                continue
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
    return text, finish, last


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The embedded engine with a model of each architecture."""
    folder = tmp_path_factory.mktemp(request.param)
    with run_engine(model_folder(folder / "model", request.param), folder) as engine:
        yield engine


def test_a_model_of_another_architecture_answers_streamed_and_not(engine: Engine, tmp_path: Path) -> None:
    with run_proxy(engine, tmp_path) as proxy:
        answer = proxy.chat(ASKED, temperature=0)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        assert choice["finish_reason"] in ("stop", "length")
        text, finish, last = streamed(proxy, temperature=0)
        assert (text, finish) == (choice["message"]["content"], choice["finish_reason"])
        assert last == "data: [DONE]"
        turn = proxy.journal().turn(answer.headers["x-openclaw-rl-turn"])
        assert turn is not None
        assert len(turn.response_ids) == len(turn.logprobs) > 0
        assert turn.untrainable == ""


def test_a_model_whose_template_has_no_tools_is_given_them_in_words(engine: Engine, tmp_path: Path) -> None:
    with run_proxy(engine, tmp_path / "words") as proxy:
        required = proxy.chat(ASKED, tools=TOOLS, tool_choice="required", temperature=0, max_tokens=12)
        assert required.status_code == 200, required.text
        begun = '<tool_call>\n{"name": "read", "arguments":'  # nothing that random weights write is JSON
        assert required.json()["choices"][0]["message"]["content"].startswith(begun)
        free = proxy.chat(ASKED, tools=TOOLS, temperature=0)
        turn = proxy.journal().turn(free.headers["x-openclaw-rl-turn"])
        assert turn is not None
        assert len(turn.response_ids) == len(turn.logprobs) > 0
        assert turn.untrainable == ""
        assert turn.tools == TOOLS
    with run_proxy(engine, tmp_path / "template", tools="template") as proxy:
        refused = proxy.chat(ASKED, tools=TOOLS)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "tools"
        assert "no place for tools" in refused.json()["error"]["message"]


@pytest.mark.parametrize("engine", ["llama"], indirect=True)  # the template is the tokenizer's, whatever the model
def test_a_model_without_a_template_is_refused_or_served_as_plain_text(engine: Engine, tmp_path: Path) -> None:
    bare = shutil.copytree(engine.policy, tmp_path / "model")
    (bare / "chat_template.jinja").unlink()
    with (
        pytest.raises(RuntimeError, match=r"exit code 2(.|\n)*no chat template(.|\n)*family = plain"),
        run_proxy(engine, tmp_path / "refused", model=str(bare)),
    ):
        pass
    with run_proxy(engine, tmp_path / "plain", model=str(bare), family="plain") as proxy:
        answer = proxy.chat(ASKED)
        assert answer.status_code == 200
        turn = proxy.journal().turn(answer.headers["x-openclaw-rl-turn"])
        assert turn is not None


async def test_a_llama_is_served_and_trained_by_the_whole_service(tmp_path: Path) -> None:
    policy = model_folder(tmp_path / "model", "llama")
    settings: dict[str, str | int | float | bool] = {
        "model": str(policy),
        "batch_size": 1,
        "rehearsals": 1,
        "anchors": 1,
        "epochs": 1,
        "rehearsal_max_tokens": 4,
        "max_output_tokens": 8,
        "device": "cpu",
    }
    async with own_service(settings) as service, ChatClient(service.url, service.key) as client:
        said = list(ASKED)
        for text in ("Too long. Write it without bullets, please.", "Thanks!"):
            answer = await client.chat(said)
            said += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": text}]
        await client.chat(said)
        deadline = time.monotonic() + 60
        while ((status := await client.get("/rl/status"))["version"]["live"] or 0) < 1:
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.2)
