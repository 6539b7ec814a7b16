"""Sessions of a trajectory file as turns of a journal.

Their answers were not sampled here. They are written as the policy would write them (`cli.trajectories.answer_ids`),
scored by the live version, and marked as imported (`Sampling.imported`). Their logprobs are the live version's, so
terms with an importance ratio skip them; distillation, which compares complete distributions, uses them. An answer that
the policy would write otherwise is kept with that reason and never trained on.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence

import msgspec

from openclaw_rl.cli.trajectories.answer_ids import spell
from openclaw_rl.cli.trajectories.trajectory import FileSession, FileTurn, TrajectoryError
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.equality import message_key
from openclaw_rl.shared.messages.normalize import ChatInput, clean_text, normalize_chat, normalize_messages
from openclaw_rl.shared.records import (
    Feedback,
    ImageSpan,
    Message,
    NextState,
    Sampling,
    Timings,
    Turn,
    VersionSpan,
    now,
)
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.prompter import Prompter

SOURCE = "import"
"""The dialect, kind reason and session source of imported turns."""

NOT_TRAINABLE = "its file says that it is not to be trained on"
_SCORED_AT_ONCE = 8


class SourceTurn(msgspec.Struct, frozen=True):
    """A turn of a file in canonical form."""

    turn: FileTurn
    chat: ChatInput
    answer: Message


class Added(msgspec.Struct, frozen=True):
    """An imported session: the number of its turns, of those that may be trained on, and of the others by reason."""

    session_id: str
    turns: int
    trainable: int
    left_out: Counter[str]


class Importer:
    """Writes sessions into a journal. `context` is the engine's limit in tokens; `policy` the name of the model."""

    def __init__(self, journal: AsyncJournal, engine: Engine, prompter: Prompter, *, policy: str, context: int) -> None:
        self._journal = journal
        self._engine = engine
        self._prompter = prompter
        self._policy = policy
        self._context = context
        self._places = asyncio.Semaphore(_SCORED_AT_ONCE)

    def read(self, session: FileSession) -> list[SourceTurn]:
        """The session's turns in canonical form. Raises `TrajectoryError` that names the turn."""
        return [self._read(turn, f"{session.where}, turn {index}") for index, turn in enumerate(session.turns)]

    async def add(self, session: FileSession) -> Added | None:
        """Score the session and store it with all of its turns; `None` if it is there already, or is empty. Raises
        `TrajectoryError`, `EngineError`, `JournalError`; nothing of it is stored then.
        """
        if not session.turns or await self._journal.session(session.name) is not None:
            return None
        sources = self.read(session)
        parents = _parents(sources)
        turns = await asyncio.gather(
            *(self._turn(session, index, one, parents[index]) for index, one in enumerate(sources))
        )
        states, feedback = [], []
        for turn, one in zip(turns, sources, strict=True):
            if one.turn.next_state:
                text = clean_text(one.turn.next_state)
                states.append(NextState(turn_id=turn.turn_id, role=one.turn.next_role, text=text, source=SOURCE))
            for number, said in enumerate(one.turn.feedback):
                feedback.append(
                    Feedback(
                        feedback_id=f"fb_{_digest(turn.turn_id, str(number))}",
                        turn_id=turn.turn_id,
                        session_id=turn.session_id,
                        score=said.score,
                        text=clean_text(said.text),
                        source=SOURCE,
                    )
                )
        if not await self._journal.import_session(turns, states, feedback):
            return None
        main = [turn for turn in turns if turn.kind == "main"]
        return Added(
            session.name,
            len(turns),
            sum(not turn.untrainable for turn in main),
            Counter(turn.untrainable for turn in main if turn.untrainable),
        )

    def _read(self, turn: FileTurn, where: str) -> SourceTurn:
        messages = turn.messages if turn.messages is not None else turn.prompt
        if isinstance(messages, str):
            if not messages.strip():
                raise TrajectoryError(f"{where}: prompt is missing or empty")
            messages = [{"role": "user", "content": messages}]
        answer = turn.answer if turn.answer is not None else turn.response
        if answer is None:
            raise TrajectoryError(f"{where}: response is missing; a turn without an answer is nothing to learn from")
        if isinstance(answer, str):
            answer = {"content": answer}
        if answer.get("role", "assistant") != "assistant":
            raise TrajectoryError(f"{where}: response is a message of role {answer['role']!r}, not the assistant's")
        for said in turn.feedback:
            if said.score is not None and not -1.0 <= said.score <= 1.0:
                raise TrajectoryError(f"{where}: feedback has score {said.score:g}; it must be between -1 and 1")
        try:
            chat = normalize_chat({"messages": messages, "tools": turn.tools}, blind=self._prompter.blind)
            (message,) = normalize_messages([{**answer, "role": "assistant"}])
        except BadRequest as error:
            raise TrajectoryError(f"{where}: {error.message}") from error
        return SourceTurn(turn, chat, message)

    async def _turn(self, session: FileSession, index: int, source: SourceTurn, parent: int | None) -> Turn:
        chat = source.chat
        try:
            prompt = self._prompter.render(chat)
        except BadRequest as error:
            raise TrajectoryError(f"{session.where}, turn {index}: {error.message}") from error
        ids, fault = await self._ids(source, prompt)
        logprobs: Sequence[float] = ()
        spans: Sequence[VersionSpan] = ()
        note = "imported, and not sampled by this policy"
        if not fault:
            images = prompt.placed_images()
            async with self._places:
                scores = await self._engine.score(prompt.ids(), ids.tolist(), priority=Priority.AUDIT, images=images)
            logprobs, spans = scores.logprobs, (VersionSpan(scores.version, 0, len(ids)),)
            note = f"{note}; its logprobs are those of version {scores.version}, which scored it"
        time = now()
        return Turn(
            turn_id=_turn_id(session, index),
            session_id=session.name,
            episode=0,
            parent_turn_id=None if parent is None else _turn_id(session, parent),
            parent_reason="" if parent is not None else "imported, and it continues no turn of its session",
            kind=source.turn.type,
            kind_reason=SOURCE,
            dialect=SOURCE,
            policy=self._policy,
            messages=chat.messages,
            tools=chat.tools,
            answer=source.answer,
            prompt_ids=prompt.packed(),
            response_ids=ids,
            logprobs=logprobs,
            sampling=Sampling(imported=True),
            versions=spans,
            finish_reason="tool_calls" if source.answer.get("tool_calls") else "stop",
            status="complete",
            error=note,
            timings=Timings(arrived=time, first_token=None, finished=time),
            untrainable=fault,
            image_spans=[ImageSpan(image.start, image.end) for image in prompt.placed_images()],
        )

    async def _ids(self, source: SourceTurn, prompt: Prompt) -> tuple[array[int], str]:
        """The ids of the answer, and the reason why the turn must not be trained on."""
        turn, chat, answer = source.turn, source.chat, source.answer
        if (outgoing := self._prompter.outgoing) is not None:  # not sampled here: it is redacted like the prompt
            chat, answer = await asyncio.to_thread(lambda: (outgoing.chat(chat), outgoing.message(answer)))
        ids, fault = await asyncio.to_thread(spell, self._prompter, chat, prompt, answer)
        length = prompt.length + len(ids)
        if turn.type != "main":
            return ids, "a side turn, imported without being scored"
        if not turn.trainable:
            return ids, f"{NOT_TRAINABLE}: {turn.reason}" if turn.reason else NOT_TRAINABLE
        if fault:
            return ids, f"imported, and its answer {fault}"
        if length > self._context:
            return ids, f"imported, and longer than the engine's context of {self._context} tokens ({length})"
        return ids, ""


def _parents(sources: Sequence[SourceTurn]) -> list[int | None]:
    """For each turn the earlier main turn that its history continues: the one with the longest history."""
    known: list[tuple[list[bytes], int]] = []
    found: list[int | None] = []
    for index, one in enumerate(sources):
        keys = [message_key(message) for message in one.chat.messages]
        fitting = [(len(before), place) for before, place in known if keys[: len(before)] == before]
        found.append(max(fitting)[1] if fitting else None)
        if one.turn.type == "main":
            known.append(([*keys, message_key(one.answer)], index))
    return found


def _turn_id(session: FileSession, index: int) -> str:
    return f"turn_{_digest(session.name, str(index))}"


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
