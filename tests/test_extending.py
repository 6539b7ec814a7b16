"""The whole service with a user's own code in it, as docs/extending.md starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.evaluation.service import own_service
from openclaw_rl.shared.chat_client import ChatClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "extending"


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_service_learns_with_a_judge_rollouts_and_sampling_of_ones_own(tmp_path: Path) -> None:
    settings: dict[str, str | int | float | bool] = {
        **{
            name: str(EXAMPLES / f"{name.removeprefix('custom_')}.py") for name in ("custom_rollout", "custom_generate")
        },
        "judge": str(EXAMPLES / "judge.py"),
        "report_to": "tensorboard",
        "batch_size": 1,
        "anchors": 1,
        "epochs": 1,
        "guard": False,
        "rehearsal_max_tokens": 16,
    }
    async with own_service(settings, keep=tmp_path) as service, ChatClient(service.url, service.key) as client:
        said: list[dict[str, Any]] = [{"role": "user", "content": "How much is 7 and 5?"}]
        answer = await client.chat(said)
        said += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "Shorter, please."}]
        await client.chat(said)
        async with asyncio.timeout(300):
            while ((status := await client.get("/rl/status"))["version"]["live"] or 0) < 1 or not list(
                tmp_path.glob("tensorboard/*")
            ):
                await asyncio.sleep(0.2)
        assert status["processes"]["learner"]["detail"]["notes"] == {}
        judging = status["judging"]
        assert (judging["judgements"], judging["votes"], judging["failed"]) == (1, 1, 0)
        (version,) = [one for one in (await client.get("/rl/versions"))["versions"] if one["number"] == 1]
        figures = version["metrics"]
        assert (figures["mix/rehearsals"], figures["mix/anchors"], figures["mix/hints"]) == (4, 1, 1)
