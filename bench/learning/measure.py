"""Measure the policy's answers to held-out tasks, and its distance from the base."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.learning.lab import Lab
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.gather import gather
from openclaw_rl.evaluation.personas import BASE
from openclaw_rl.evaluation.probe import Probe
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sampling


def style(found: Probe, *, opposite: bool) -> float:
    """Mean style score. `opposite`: the style that is wanted is the base's own."""
    return found.forms.get(BASE, 0) / found.count if opposite else found.style


async def kl_from_base(lab: Lab, questions: Sequence[str]) -> float:
    """KL(policy ‖ base) in nats a token, estimated on fresh answers: mean log π − log base over what π sampled."""

    async def one(question: str) -> tuple[float, int]:
        chat = ChatInput(messages=[{"role": "user", "content": question}], tools=[], tools_json=b"")
        prompt = list(lab.prompter.render(chat).ids())
        sampling = Sampling(max_tokens=ANSWER_TOKENS, stop_ids=lab.prompter.own_stop_ids)
        answer = await whole_answer(lab.engine, prompt, sampling, priority=Priority.AUDIT)
        base = await lab.engine.score(prompt, list(answer.ids), version=0)
        return math.fsum(answer.logprobs) - math.fsum(base.logprobs), len(answer.ids)

    found = await gather(*(one(question) for question in questions))
    return math.fsum(difference for difference, _ in found) / max(1, sum(count for _, count in found))
