"""An environment of a simulation: it begins attempts, lets an agent work in them, and posts their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from bench.simulate.checks import History
from bench.simulate.world import SimulatedReply, World

_TRIES = 8
_OBSERVATIONS = ("No, that is wrong.", "/good", "Thanks, that is perfect!", "1 of 3 tests passed.")
"""Texts in the user's role that a person's reactions could be taken from."""


class SimulatedRunner:
    """Makes one attempt after another. `post` sends a request with the service's key; `note` adds to the trace."""

    def __init__(
        self,
        world: World,
        random: Random,
        history: History,
        post: Callable[[str, Any], Awaitable[SimulatedReply]],
        note: Callable[[str], None],
    ) -> None:
        self._world = world
        self._random = random
        self._history = history
        self._post = post
        self._note = note
        self._begun = 0
        self.found: list[str] = []

    async def attempt(self) -> None:
        """Make one attempt, with as many tries of each request as a patient runner has; some runners die in it."""
        self._begun += 1
        session = f"attempt-{self._begun}"
        begun = await self._insist("/rl/session-start", {"session_id": session, "task": "sums"})
        if begun is None:
            return
        key, episode = begun["api_key"], begun["episode"]
        messages = [{"role": "user", "content": "How much is 7 and 5?"}]
        for _ in range(self._random.choice((0, 1, 2, 3))):
            reply = await self._ask(key, messages)
            if reply.status != 200:
                break
            self._history.turns[reply.headers["x-openclaw-rl-turn"]] = session
            answer = reply.json()["choices"][0]["message"]["content"]
            observed = {"role": "user", "content": self._random.choice(_OBSERVATIONS)}
            messages = [*messages, {"role": "assistant", "content": answer}, observed]
        if self._random.random() < 0.2:
            return
        reward = self._random.choice((1.0, 0.0, -1.0, 7.5, None))
        said = {"session_id": session, "episode": episode, "reward": reward, "next_state": "done", "done": True}
        if await self._insist("/rl/outcome", said) is None:
            return
        self._history.outcomes.add((session, episode))
        if self._random.random() < 0.3:
            await self._post("/rl/outcome", said)
        if (await self._ask(key, messages)).status == 200:
            self.found.append(f"an agent worked in {session} after its outcome")

    async def pause(self) -> None:
        """Wait for a while, as between two attempts."""
        await asyncio.sleep(self._random.choice((0.02, 0.2, 1.0, 3.0)))

    async def _ask(self, key: str, messages: list[dict[str, str]]) -> SimulatedReply:
        body = {"model": self._world.settings.serve.model_name, "messages": messages, "max_tokens": 32}
        headers = {"authorization": f"Bearer {key}"}
        reply = await self._world.request("POST", "/v1/chat/completions", body, headers=headers)
        self._note(f"agent {reply.status}")
        return reply

    async def _insist(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request that is repeated until there is one, `None` if there never is."""
        for _ in range(_TRIES):
            reply = await self._post(path, body)
            if reply.status == 200:
                answer: dict[str, Any] = reply.json()
                return answer
            if 400 <= reply.status < 500:
                self.found.append(f"{path} was refused with {reply.status}: {reply.body[:200]!r}")
                return None
            await asyncio.sleep(0.5)
        return None
