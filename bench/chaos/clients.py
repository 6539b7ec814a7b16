"""Live traffic: people who stream answers, complain, thank and vote, and remember what was acknowledged."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from openclaw_rl.shared.chat_client import ChatClient, ChatError, Message
from openclaw_rl.shared.records import new_id

QUESTIONS = ("How many legs has a spider?", "What is 7 + 5?", "Name a colour.", "Who wrote Faust?", "Is water wet?")
REACTIONS = (
    "No, that is wrong. Answer in one word.",
    "Shorter, please.",
    "Thanks, that is right!",
    "Always answer in upper case.",
    "And why is that?",
)
ANSWER_TOKENS = 24
CLIENTS = 3
TURNS = 4
"""Turns of a conversation."""
PATIENCE_SECONDS = 60.0


class Traffic:
    """Conversations with the service at `url`. `history` gets what the service has acknowledged, `asked` counts the
    requests that were answered or given up, `failed` those given up.
    """

    def __init__(self, url: str, key: str, history: Path, seed: int) -> None:
        self._url = url
        self._key = key
        self._history = history
        self._random = random.Random(seed)
        self.turns = 0
        self.failed = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clients talk during the block; each finishes what it is doing."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._talk(stop), name="client") for _ in range(CLIENTS)]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def probe(self, seconds: float) -> bool:
        """True if a chat is answered within `seconds`."""
        try:
            async with asyncio.timeout(seconds), ChatClient(self._url, self._key, patience=seconds) as client:
                await self._converse(client, asyncio.Event(), turns=1)
        except (ChatError, TimeoutError):
            return False
        return True

    async def _talk(self, stop: asyncio.Event) -> None:
        async with ChatClient(self._url, self._key, patience=PATIENCE_SECONDS) as client:
            while not stop.is_set():
                try:
                    await self._converse(client, stop, turns=TURNS)
                except ChatError:
                    self.failed += 1

    async def _converse(self, client: ChatClient, stop: asyncio.Event, *, turns: int) -> None:
        """A conversation; after `stop` it ends with the answer that is on its way."""
        headers = {"X-Session-Id": new_id("chaos")}
        messages: list[Message] = [{"role": "user", "content": self._random.choice(QUESTIONS)}]
        before: str | None = None
        for _ in range(turns):
            reply = await client.chat(messages, stream=True, headers=headers, max_tokens=ANSWER_TOKENS)
            self._acknowledged("turn", turn_id=reply.turn_id, after=before)
            if before is not None:
                self._acknowledged("next_state", turn_id=before)
            self.turns += 1
            before = reply.turn_id
            if self._random.random() < 0.4:
                await self._vote(client, reply.turn_id)
            if stop.is_set():
                return
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": self._random.choice(REACTIONS)})

    async def _vote(self, client: ChatClient, turn: str) -> None:
        feedback = new_id("fb")
        score = self._random.choice((-1.0, 1.0))
        await client.post("/rl/feedback", {"turn_id": turn, "score": score, "feedback_id": feedback})
        self._acknowledged("feedback", turn_id=turn, feedback_id=feedback)

    def _acknowledged(self, kind: str, **said: str | None) -> None:
        with self._history.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **said}) + "\n")
