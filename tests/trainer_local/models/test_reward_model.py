"""The reward model on tiny classifiers with random weights, made here and loaded as a user's would be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

from openclaw_rl.shared.backends import create_reward_model
from openclaw_rl.shared.errors import ConfigError, JudgeError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_local.models.reward_model import SequenceClassifier, plain, positive_label, probability

TALK = [("user", "how much is 2 and 2"), ("assistant", "4"), ("user", "thanks")]
TOOL = [("user", "read it"), ("assistant", "(calls read)"), ("tool", "no such file")]
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}"
)
CONTEXT = 128


def write_classifier(folder: Path, *, labels: int = 1, template: str = "", seed: int = 0, **changes: Any) -> Path:
    """A random Qwen3 classifier whose tokens are single characters; `<e>` ends messages and pads."""
    torch.manual_seed(seed)
    words = ["<pad>", "<e>", "<u>", "<a>", *(chr(code) for code in range(32, 127))]
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        num_labels=labels,
        pad_token_id=1,
        initializer_range=0.3,
        **changes,
    )
    Qwen3ForSequenceClassification(config).save_pretrained(folder)
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<e>", pad_token="<e>", additional_special_tokens=["<u>", "<a>"]
    )
    if template:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def by_hand(folder: Path, text: str) -> list[float]:
    """The logits of the last token, from transformers directly."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        hidden = model.model(input_ids=ids).last_hidden_state[0, -1]
        return list(model.score(hidden).tolist())


async def test_one_logit_becomes_a_score_by_the_logistic_function(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "model")
    score, reason = await create_reward_model(Settings(device="cpu"), str(folder)).rate(TALK)
    (logit,) = by_hand(folder, "User: how much is 2 and 2\n\nAssistant: 4\n\nUser: thanks")
    assert score == pytest.approx(2 / (1 + math.exp(-logit)) - 1, abs=1e-5)
    assert f"{logit:.3g}"[:4] in reason and "of [0, 1]" in reason


async def test_of_two_labels_the_positive_ones_softmax_counts(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "model", labels=2, id2label={0: "good", 1: "bad"})
    good, bad = by_hand(folder, plain(TALK))
    share = math.exp(good) / (math.exp(good) + math.exp(bad))
    score, _ = await SequenceClassifier(str(folder), device="cpu").rate(TALK)
    assert score == pytest.approx(2 * share - 1, abs=1e-5)


async def test_the_folders_own_chat_template_writes_the_conversation(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "model", template=TEMPLATE)
    model = SequenceClassifier(str(folder), device="cpu")
    score, _ = await model.rate(TALK)
    # It ends in the token that pads: the last token is read all the same.
    written = "<u>how much is 2 and 2<e><a>4<e><u>thanks<e>"
    (logit,) = by_hand(folder, written)
    assert score == pytest.approx(2 / (1 + math.exp(-logit)) - 1, abs=1e-5)
    ids, _ = model.encode(TOOL)  # a template without tools takes what a tool said as a user's
    assert AutoTokenizer.from_pretrained(folder).decode(ids).replace(" ", "") == (
        "<u>readit<e><a>(callsread)<e><u>nosuchfile<e>"
    )


async def test_a_template_that_takes_no_such_conversation_is_left_aside(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "model", template="{{ raise_exception('never') }}")
    model = SequenceClassifier(str(folder), device="cpu")
    ids, length = model.encode(TALK)
    assert length == len(ids) == len(plain(TALK))


@pytest.mark.parametrize("template", ["", TEMPLATE], ids=["plain", "template"])
async def test_a_conversation_that_is_too_long_loses_its_beginning(tmp_path: Path, template: str) -> None:
    folder = write_classifier(tmp_path / "model", template=template)
    model = SequenceClassifier(str(folder), device="cpu")
    talk = [("user", "x" * 500), ("assistant", "4"), ("user", "the very end")]
    ids, length = model.encode(talk)
    assert len(ids) == CONTEXT and length > 500
    ending = AutoTokenizer.from_pretrained(folder).decode(ids, skip_special_tokens=True).replace(" ", "")
    assert ending.endswith("theveryend")
    _, reason = await model.rate(talk)
    assert f"{CONTEXT} of {length} tokens were read" in reason


async def test_a_model_that_cannot_serve_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded as a sequence classifier"):
        await SequenceClassifier(str(tmp_path / "nowhere"), device="cpu").rate(TALK)
    three = write_classifier(tmp_path / "three", labels=3)
    with pytest.raises(ConfigError, match="not 3"):
        await SequenceClassifier(str(three), device="cpu").rate(TALK)
    broken = SequenceClassifier(str(write_classifier(tmp_path / "broken")), device="cpu")
    broken._load()
    broken._model.score.weight.data.fill_(float("nan"))
    with pytest.raises(JudgeError, match="no numbers"):
        await broken.rate(TALK)


async def test_a_chat_model_whose_head_would_be_random_is_no_classifier() -> None:
    with pytest.raises(ConfigError, match=r"has no weights for score\.weight, so it is no sequence classifier"):
        await SequenceClassifier(str(EMBEDDED_POLICY), device="cpu").rate(TALK)


async def test_a_model_that_fails_in_the_middle_is_a_failed_vote(tmp_path: Path) -> None:
    model = SequenceClassifier(str(write_classifier(tmp_path / "model")), device="cpu")
    model._load()
    model._model.score = torch.nn.Linear(7, 1)  # a head of another width
    with pytest.raises(JudgeError, match=r"failed: RuntimeError: mat1 and mat2"):
        await model.rate(TALK)


def test_probabilities_at_the_ends_do_not_overflow() -> None:
    assert probability([0.0], None) == 0.5
    assert probability([5000.0], None) == 1.0 and probability([-5000.0], None) == 0.0
    assert probability([3.0, 1.0], 0) == pytest.approx(math.exp(3) / (math.exp(3) + math.exp(1)))
    assert probability([3.0, 1.0], 1) == pytest.approx(math.exp(1) / (math.exp(3) + math.exp(1)))


def test_the_positive_label_is_named_or_the_second() -> None:
    assert positive_label(1, {0: "LABEL_0"}) is None
    assert positive_label(2, {0: "LABEL_0", 1: "LABEL_1"}) == 1
    assert positive_label(2, {0: "Positive", 1: "Negative"}) == 0
