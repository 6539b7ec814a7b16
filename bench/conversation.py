"""Batches in the shape of OpenClaw's conversations, of random tokens.

Requests have the shape of OpenClaw's (2026.9.6): a system prompt and tools, messages, and at the end of every prompt a
floating context that is missing from later prompts, so that no prompt continues the previous one. Every model call is a
turn to train on: an answer to a person, then one to a tool result, and so on. Lengths come from recorded requests at
four characters a token; those of answers, hints and tool results, which came from a stand-in, are assumed.
"""

from __future__ import annotations

import math
from random import Random

from bench.random_model import even_sample
from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings

SYSTEM = (18_131 + 4_631) // 4
FIRST_MESSAGE = 435 // 4
MESSAGE = 81 // 4
FLOATING_CONTEXT = 181 // 4
"""Tokens of recorded requests (OpenClaw with its extension, reduced tools; the full ones are twice as long)."""

TOOL_RESULT = 160
ANSWER = 120
HINT = 30
"""Tokens, assumed."""

ROLE = 5
"""Tokens that a chat template adds to a message."""

VOCABULARY = 512


def conversation(
    turns: int, scale: float, *, floating: bool, seed: int = 0, vocabulary: int = VOCABULARY, hints: int = 0
) -> list[Sample]:
    """The model calls of a session, all lengths divided by `scale`, with rewards and with `hints` hinted prompts each.

    A hint is at the end of the last message that a person wrote (`shared.messages.hint`): before the floating context,
    and before a tool's result with the call that asked for it.
    """
    draw, hinting = Random(seed), Random(seed + 1)

    def tokens(count: int, source: Random = draw) -> list[int]:
        return [source.randrange(vocabulary) for _ in range(max(1, round(count / scale)))]

    history = tokens(SYSTEM + ROLE) + tokens(FIRST_MESSAGE + ROLE)
    made = []
    for turn in range(turns):
        if turn:
            history += tokens((TOOL_RESULT if turn % 2 else MESSAGE) + ROLE)
        if not turn % 2:
            said = len(history)
        answer = tokens(ANSWER)
        prompt = [*history, *(tokens(FLOATING_CONTEXT + ROLE) if floating else [])]
        made.append(
            even_sample(
                f"turn-{turn}",
                turn_id=f"turn-{turn}",
                prompt=prompt,
                answer=answer,
                logprob=-math.log(vocabulary),  # uniform, as random weights nearly are
                reward=1.0 if draw.random() < 0.5 else -1.0,
                explicit=True,
                hint="a hint" if hints else None,
                hinted_prompts=[[*prompt[:said], *tokens(HINT, hinting), *prompt[said:]] for _ in range(hints)],
            )
        )
        history += answer
    return made


def scale_for(tokens: int, turns: int, *, floating: bool) -> float:
    """The `scale` at which the longest turn of a conversation has about `tokens` tokens."""
    *_, last = conversation(turns, 1.0, floating=floating)
    return (len(last.prompt_ids) + len(last.response_ids)) / tokens


def batch(turns: int, scale: float, *, method: str, floating: bool, vocabulary: int = VOCABULARY) -> list[Sample]:
    """A conversation as a batch of `method`: with a hint a turn, or as many as a step of `rehearse` may remember, and
    with that method's rehearsals and anchors, in their default numbers for as many turns.
    """
    learning = Settings().learning
    hints = {"none": 0, "own": 1, "remembered": learning.max_hints}[METHODS[method].hints]
    made = conversation(turns, scale, floating=floating, vocabulary=vocabulary, hints=hints)
    if not METHODS[method].rollouts:
        return made
    draw = Random(2)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(vocabulary) for _ in range(max(1, round(count / scale)))]

    def rollouts(count: int) -> range:
        return range(turns * count // learning.batch_size)

    for number in rollouts(learning.rehearsals):
        turn = made[number % turns]
        fields = {"origin": "rehearsal", "hint": turn.hint, "hinted_prompts": turn.hinted_prompts}
        made.append(
            even_sample(f"rehearsal-{number}", turn.prompt_ids, tokens(ANSWER), -math.log(vocabulary), **fields)
        )
    for number in rollouts(learning.anchors):
        prompt, answer = tokens(MESSAGE + ROLE), tokens(ANSWER)
        made.append(even_sample(f"anchor-{number}", prompt, answer, -math.log(vocabulary), origin="anchor"))
    return made
