"""The last step and the judge's counts, in `/metrics` and `/rl/status`, as the journal has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.shared.records import Judgement, PolicyVersion, Vote
from tests.proxy.scripted_engine import scripted_service

METRICS = {
    "loss/total": 1.5,
    "loss/opd": 0.5,
    "kl/base": 0.25,
    "ratio/clipped": 0.125,
    "lag/max": 3.0,
    "mix/feedback": 2.0,
    "gradient/norm": 4.0,
    "learning_rate": 0.002,
    "tokens": 640.0,
    "judge/votes": 9.0,
    "of/another/trainer": 7.0,
}


async def scraped(client: httpx.AsyncClient) -> dict[str, float]:
    text = (await client.get("/metrics")).text
    found = re.findall(r"^openclaw_rl_((?:step|judge|live)\S*) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def version(number: int, **changes: Any) -> PolicyVersion:
    fields: dict[str, Any] = {"parent": 0, "state": "candidate", "checkpoint": "", "method": "rehearse"}
    return PolicyVersion(number=number, **(fields | {"metrics": METRICS, "time": 1000.0} | changes))


async def test_the_last_step_is_published_and_a_rejected_one_too(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.") as (client, service, _):
        journal = service.journal
        await journal.commit_version(version(0, parent=None, state="live", method=""))
        assert "step_loss" not in "".join(await scraped(client)), "the base is no step"
        await journal.commit_version(version(1))
        assert await journal.make_live(1)
        published = await scraped(client)
        assert published == published | {
            'step_loss{term="total"}': 1.5,
            'step_loss{term="opd"}': 0.5,
            'step_kl{reference="base"}': 0.25,
            'step_ratio{statistic="clipped"}': 0.125,
            'step_lag{statistic="max"}': 3.0,
            'step_mix{kind="feedback"}': 2.0,
            'step_gradient{statistic="norm"}': 4.0,
            'step_figure{name="learning_rate"}': 0.002,
            'step_figure{name="tokens"}': 640.0,
            'step_figure{name="of/another/trainer"}': 7.0,
            "step_version": 1.0,
            "step_rejected": 0.0,
            "step_time_seconds": 1000.0,
            "live_version": 1.0,
        }
        await journal.commit_version(version(2, parent=1, state="rejected", metrics={"loss/total": 99.0}))
        published = await scraped(client)
        assert published['step_loss{term="total"}'] == 99.0 and 'step_loss{term="opd"}' not in published
        assert (published["step_version"], published["step_rejected"], published["live_version"]) == (2.0, 1.0, 1.0)
    async with scripted_service(policy_folder, tmp_path, "Hi.") as (client, _, _):
        assert await scraped(client) == published, "another proxy on the journal says the same"


async def test_a_scrape_reads_a_version_once(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.") as (client, service, _):
        await service.journal.commit_version(version(0, parent=None, state="live", method=""))
        await service.journal.commit_version(version(1))
        journal, reads = service.journal, []
        read = journal.version
        monkeypatch.setattr(journal, "version", lambda number: (reads.append(number), read(number))[1])
        for _ in range(5):
            await scraped(client)
        assert reads == [1]
        assert await service.journal.make_live(1)
        for _ in range(5):
            assert (await scraped(client))["live_version"] == 1.0
        assert reads == [1, 1], "its state changed"


async def test_the_judges_failures_are_published(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.") as (client, service, _):
        body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
        turn_id = (await client.post("/v1/chat/completions", json=body)).headers["x-openclaw-rl-turn"]
        good, bad = Vote(text="1", score=1.0), Vote(failure="time-out")
        await service.journal.add_judgement(Judgement(turn_id=turn_id, score=1.0, votes=[good, good, bad]))
        await service.journal.add_judgement(Judgement(turn_id=turn_id, score=None, votes=[bad]))
        published = await scraped(client)
        assert published == published | {
            'judge_votes{outcome="valid"}': 2.0,
            'judge_votes{outcome="failed"}': 2.0,
            'judgements{score="given"}': 1.0,
            'judgements{score="none"}': 1.0,
        }
        status = (await client.get("/rl/status")).json()
        assert status["judging"].pop("judge").startswith("rules (auto: ")
        counts = {"judgements": 2, "without_score": 1, "votes": 4, "failed": 2, "not_understood": 0}
        assert status["judging"] == counts
