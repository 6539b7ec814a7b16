"""`doctor --try-provider` with the pinned Tinker client and a fake of its service (`TinkerFake`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner, Result

from openclaw_rl.cli.checks.trial import text_ids
from openclaw_rl.cli.main import app
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from openclaw_rl.trainer_cloud.budget.ledger import Ledger
from tests.rigs.tinker_server import KEY
from tests.trainer_cloud.front import Front, run_front
from tests.trainer_cloud.tinker_fake import TinkerFake
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import write_policy

CONTEXT = 900


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def fake(policy: Path) -> TinkerFake:
    return TinkerFake(TorchProvider(policy), str(policy), context=CONTEXT)


@pytest.fixture
def front(fake: TinkerFake) -> Iterator[Front]:
    with run_front(fake) as running:
        yield running


def doctor(front: Front, policy: Path, *flags: str, **given: Any) -> Result:
    own = ["--backend", "tinker", "--model", str(policy), "--tinker-base-url", front.url, "--tinker-api-key", KEY]
    return CliRunner().invoke(app, ["doctor", "--try-provider", "--data", "data", *own, *flags], **given)


def paid(front: Front) -> list[str]:
    """Requests that cost something."""
    ends = ("/asample", "/forward_backward", "/optim_step")
    return [sent.path for sent in front.sent if sent.path.endswith(ends)]


def test_it_says_the_cost_asks_and_shows_a_table_and_a_file_with_a_fake(
    front: Front, fake: TinkerFake, policy: Path
) -> None:
    Path("mine.toml").write_text(f'[tinker."{policy}"]\nprefill = 2.0\ncached = 0.4\nsample = 4.0\ntrain = 3.0\n')
    result = doctor(front, policy, "--yes", "--cloud-prices", "mine.toml", "--request-timeout", "30")
    assert result.exit_code == 0, result.output
    assert "with made-up text" in result.stderr and " at most" in result.stderr and "$0.0" in result.stderr
    assert "it continues where it was" in result.stdout and "Spent:" in result.stdout
    content = Path("data/provider_trial.json").read_text()
    found = json.loads(content)
    assert (found["provider"], found["own_service"], found["text_tokens"]) == ("tinker", False, CONTEXT - 1)
    assert found["model"] == policy.name and set(found["library"]) == {"tinker"}
    assert [row["trouble"] for row in found["findings"]] == [""] * 17
    for private in (KEY, front.url, "127.0.0.1", str(policy), "tinker://"):
        assert private not in content
    # It was counted as it was spent, and cost what it says.
    entries = Ledger(Path("data")).day(datetime.now(UTC).date().isoformat())
    assert {entry.kind: amount for entry, amount in entries.items()} == found["spent"]
    rates = {"prefill": 2.0, "cached": 0.4, "sample": 4.0, "train": 3.0}
    wanted = sum(rates.get(kind, 0) * amount for kind, amount in found["spent"].items()) / 1e6
    assert found["dollars"] == pytest.approx(wanted, abs=1e-6)
    assert found["spent"]["cached"] > 4 * CONTEXT and not fake.provider.kept


def test_without_a_terminal_nothing_is_asked_of_the_provider_with_a_fake(front: Front, policy: Path) -> None:
    result = doctor(front, policy)
    assert result.exit_code != 0 and "add --yes" in str(result.exception)
    assert "price is not known here" in result.stderr
    assert not paid(front) and not Path("data/provider_trial.json").exists()


def test_a_budget_that_is_too_small_is_kept_with_a_fake(front: Front, policy: Path) -> None:
    result = doctor(front, policy, "--yes", "--cloud-daily-train-tokens", "100")
    assert result.exit_code != 0 and "cloud_daily_train_tokens = 100" in str(result.exception)
    assert not paid(front)


def test_the_table_is_also_one_json_object_with_a_fake(front: Front, policy: Path) -> None:
    result = doctor(front, policy, "--yes", "--json", "--request-timeout", "30")
    assert json.loads(result.stdout) == json.loads(Path("data/provider_trial.json").read_text())
    assert json.loads(result.stdout)["dollars"] is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend", "embedded"], "there is no provider to try"),
        (["--backend", "tinker", "--tinker-api-key", ""], "TINKER_API_KEY"),
        (
            ["--backend", "fireworks", "--fireworks-api-key", "fw_x", "--fireworks-mode", "dedicated"],
            "billed for the time",
        ),
    ],
)
def test_a_backend_that_cannot_be_tried_is_refused_in_words(flags: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--try-provider", "--yes", *flags])
    assert isinstance(result.exception, ConfigError) and words in str(result.exception)


def test_a_made_up_text_is_as_long_as_it_must_be_and_new_each_time(policy: Path) -> None:
    first, second = (text_ids(EMBEDDED_POLICY, 300, seed) for seed in (1, 2))
    assert len(first) == len(second) == 300 and first[:20] != second[:20] and len(set(first)) > 10
    assert "plus" in Tokenizer.from_file(str(EMBEDDED_POLICY / "tokenizer.json")).decode(first)
    assert len(set(text_ids(policy, 300, 1))) > 20, "a tokenizer that reads no sums"
