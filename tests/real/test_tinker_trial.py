"""`doctor --try-provider` on an independent Tinker-compatible server, which reports no likeliest tokens and scores no
chosen ones: those rows say so, and the others have answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

from tests.processes import ROOT
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server
from tests.trainer_local.tiny import write_policy

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), max_position_embeddings=1000)


@pytest.fixture(scope="module")
def server(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    with run_tinker_server(policy, tmp_path_factory.mktemp("tinker")) as running:
        yield running


def test_a_server_is_tried_and_what_it_lacks_is_in_the_table(
    server: TinkerServer, policy: Path, tmp_path: Path
) -> None:
    flags = {
        "backend": "tinker",
        "model": str(policy),
        "tinker-base-url": server.url,
        "tinker-api-key": KEY,
        "lora-rank": "8",
        "request-timeout": "200",
        "data": str(tmp_path / "data"),
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "openclaw_rl.cli.main", "doctor", "--try-provider", "--yes", *arguments]
    tried = run(command, cwd=ROOT, capture_output=True, text=True, timeout=550)
    print(tried.stdout)
    found = json.loads((tmp_path / "data" / "provider_trial.json").read_text())
    rows = {row["asked"]: row for row in found["findings"]}
    consequences = {row["consequence"] for row in rows.values()}
    for wanted in (
        "sampler and trainer agree",
        "praise made the answer likelier",
        "it continues where it was",
        "what is published is what was trained",
        "take binary, opd, combined or follow-up",
    ):
        assert wanted in consequences, tried.stdout + tried.stderr
    assert {asked for asked, row in rows.items() if row["trouble"]} == {
        *(f"the scores of {count} distinct chosen ids" for count in (1, 20, 200)),
        "the same with 20 more ids in each place",
        "a step on distributions, and a forward pass after it",
    }, tried.stdout
    assert {row["trouble"] for row in rows.values()} == {"", "refused"} and tried.returncode == 0
