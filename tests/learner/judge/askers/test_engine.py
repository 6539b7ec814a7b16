"""Judges behind the `Engine` protocol: the embedded policy on a real engine, and a scripted engine that can judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.judge.askers.engine import EngineAsker, LazyPrompter
from openclaw_rl.learner.judge.create import create
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.engine.protocol import Engine as EngineProtocol
from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, Tokens
from openclaw_rl.shared.errors import ConfigError, ContextLengthExceeded, EngineError, JudgeAway, JudgeError
from openclaw_rl.shared.records import NextState, Sampling, VersionSpan
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from tests.learner.things import ready, turn
from tests.processes import Engine
from tests.trainer_cloud.serving import serving_cloud
from tests.trainer_cloud.torch_provider import TorchProvider

ASKED = turn(1, question="Tell me about tides.", answer="**Tides** rise and fall.")
COMPLAINT = NextState(turn_id=ASKED.turn_id, role="user", text="No bold, please.")


class SpeakingEngine:
    """Stands for an engine whose model can judge: says what the script holds, token by token."""

    def __init__(self, prompter: Prompter, *script: str | Exception) -> None:
        self.prompter = prompter
        self.script = list(script)
        self.asked: list[tuple[str, Sampling, dict[str, Any]]] = []
        self.closed = False
        self.released = asyncio.Event()
        self.released.set()

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, **options: Any) -> AsyncIterator[Tokens]:
        self.asked.append((self.prompter.decode(prompt_ids), sampling, options))
        await self.released.wait()
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        ids = self.prompter.tokenizer.encode(said)[: sampling.max_tokens]
        for token in ids:
            yield Tokens([token], [-1.0], 0)
        finish = "length" if len(ids) == sampling.max_tokens else "stop"
        yield Tokens([], [], 0, finish_reason=finish, versions=[VersionSpan(0, 0, len(ids))])

    async def info(self) -> EngineInfo:
        return EngineInfo(0, (0,), "somewhere/else", 4096, 4096)

    async def close(self) -> None:
        self.closed = True


def settings(**changes: Any) -> Settings:
    return Settings(**({"judge": "policy", "model": str(EMBEDDED_POLICY)} | changes))


async def test_a_scripted_policy_judges_as_the_base_behind_every_chat(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter, "It objects. \\boxed{-1}", "[HINT]Write without bold.[/HINT]")
    judge = create(settings(judge_temperature=0.2, judge_max_tokens=80), engine, prompter)  # type: ignore[arg-type]
    judgement = await judge.judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint) == (-1.0, "Write without bold.")
    assert (judgement.judge, judgement.prompt_version, judgement.selection) == ("policy", "judge-v2+hint-v2", "longest")
    assert len(engine.asked) == 2
    for question, sampling, options in engine.asked:
        assert "Tell me about tides." in question and "No bold, please." in question and "role: user" in question
        assert (sampling.temperature, sampling.max_tokens) == (0.2, 80)
        assert options == {"images": (), "version": 0, "priority": Priority.JUDGE}
    await judge.close()
    assert not engine.closed  # it is the learner's


async def test_a_scripted_policy_may_hint_for_a_judge_of_another_kind(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter, "[HINT]Write plain text.[/HINT]")
    judge = create(settings(judge="rules", hint_model="policy"), engine, prompter)  # type: ignore[arg-type]
    judgement = await judge.judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint, judgement.judge) == (-1.0, "Write plain text.", "rules")


async def test_a_scripted_answer_that_was_cut_off_says_so(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter, "I shall think about this for a very long while " * 10)
    judgement = await create(settings(judge_max_tokens=20), engine, prompter).judge(ASKED, COMPLAINT)  # type: ignore[arg-type]
    assert judgement.score is None
    assert "cut off after 20 tokens, see judge_max_tokens" in judgement.votes[0].failure
    assert judgement.votes[0].text.startswith("I shall think")


async def test_a_question_that_a_scripted_engine_refuses_is_a_failed_vote_among_others(prompter: Prompter) -> None:
    refusals = (
        EngineError("no version 0", status=404),
        ContextLengthExceeded(prompt_tokens=9, requested_tokens=9, context_length=9),
        EngineError("the stream ended"),
    )
    engine = SpeakingEngine(prompter, *refusals)
    judge = create(settings(votes=3), engine, prompter)  # type: ignore[arg-type]
    judgement = await judge.judge(ASKED, COMPLAINT)
    assert judgement.score is None and "3 of 3 votes failed" in judgement.reason
    for error in refusals:
        assert any(vote.failure.endswith(str(error)) for vote in judgement.votes)


@pytest.mark.parametrize(
    "why", [EngineError("no version 0", status=404), EngineError("busy", status=503), EngineError("the stream ended")]
)
async def test_a_scripted_engine_that_cannot_answer_lets_the_turn_wait_with_its_words(
    prompter: Prompter, why: EngineError
) -> None:
    judge = create(settings(votes=2), SpeakingEngine(prompter, why, why), prompter)  # type: ignore[arg-type]
    with pytest.raises(JudgeAway, match=f"policy waits for its engine: {why}"):
        await judge.judge(ASKED, COMPLAINT)


async def test_a_scripted_engine_that_is_gone_lets_the_turn_wait(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter, EngineError("the engine cannot be reached"), r"\boxed{1}")
    judge = create(settings(votes=1, method="binary"), engine, prompter)  # type: ignore[arg-type]
    with pytest.raises(JudgeAway, match="policy waits for its engine"):
        await judge.judge(ASKED, COMPLAINT)
    assert (await judge.judge(ASKED, COMPLAINT)).score == 1.0


async def test_a_scripted_engine_that_does_not_get_to_it_behind_chat_lets_the_turn_wait(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter, r"\boxed{1}")
    engine.released.clear()
    judge = create(settings(judge_timeout=0.1, votes=1, method="binary"), engine, prompter)  # type: ignore[arg-type]
    with pytest.raises(JudgeAway, match=r"no answer within 0\.1 s"):
        await judge.judge(ASKED, COMPLAINT)
    engine.released.set()
    assert (await judge.judge(ASKED, COMPLAINT)).score == 1.0


async def test_a_model_that_cannot_be_written_for_lets_the_turn_wait(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter)
    asker = EngineAsker(
        "engine:x",
        engine,  # type: ignore[arg-type]
        LazyPrompter.folder("", engine),  # type: ignore[arg-type]
        settings(),
        version=None,
        own=False,
    )
    with pytest.raises(JudgeAway, match="engine:FOLDER@URL"):
        await asker.ask("Was it good?")


async def test_a_question_that_does_not_fit_the_model_is_a_failed_vote(prompter: Prompter) -> None:
    engine = SpeakingEngine(prompter)
    asker = EngineAsker(
        "policy",
        engine,
        ready(prompter),
        settings(),
        version=0,
        own=False,  # type: ignore[arg-type]
    )
    with pytest.raises(JudgeError, match=r"tokens, and the model reads \d+"):
        await asker.ask("word " * 60_000)
    assert not engine.asked


async def test_an_engine_whose_model_is_elsewhere_needs_a_folder(prompter: Prompter) -> None:
    with pytest.raises(ConfigError, match="engine:FOLDER@URL"):
        await LazyPrompter.folder("", SpeakingEngine(prompter)).get()  # type: ignore[arg-type]


def test_an_engine_of_its_own_that_is_not_started_is_refused() -> None:
    with pytest.raises(ConfigError, match="judge = engine:models/judge@URL"):
        create(settings(judge="engine:models/judge"))
    with pytest.raises(ConfigError, match="hint_model = engine:models/judge@URL"):
        create(settings(judge="rules", hint_model="engine:models/judge"))
    with pytest.raises(ConfigError, match="there is none here"):
        create(settings())


@pytest.fixture
async def client(engine_server: Engine) -> AsyncIterator[EngineProtocol]:
    engine = create_engine(settings(engine_url=engine_server.url))
    yield engine
    await engine.close()


async def test_the_embedded_policy_cannot_judge_in_words_and_that_is_a_failure(client: EngineProtocol) -> None:
    judge = create(settings(votes=3, judge_max_tokens=48), client)
    judgement = await judge.judge(ASKED, COMPLAINT)
    assert judgement.score is None and judgement.hint is None
    assert [vote.score for vote in judgement.votes] == [None] * 3
    assert all("boxed" in vote.failure and vote.text for vote in judgement.votes)
    assert judgement.reason.startswith("3 of 3 votes failed: the answer holds no \\boxed{} score")


async def test_the_base_at_a_stand_in_for_a_provider_is_asked_over_the_cloud_engine(tmp_path: Path) -> None:
    chosen = settings(backend="tinker", cloud_redact="off", data=tmp_path, judge_max_tokens=8, method="binary")
    provider = TorchProvider(EMBEDDED_POLICY)
    with serving_cloud(chosen, provider) as url:
        engine = create_engine(chosen.replace(engine_url=url))
        judgement = await create(chosen, engine).judge(ASKED, COMPLAINT)
        await engine.close()
    assert provider.sampled == 3 and judgement.score is None, "three tries of one vote"
    assert "cut off after 8 tokens" in judgement.reason and judgement.votes[0].text


@pytest.mark.parametrize("by", ["folder", "url"])
async def test_an_engine_of_its_own_is_asked_over_the_same_wire(engine_server: Engine, by: str) -> None:
    folder = f"{EMBEDDED_POLICY}@" if by == "folder" else ""
    judge = create(settings(judge_max_tokens=24, judge=f"engine:{folder}{engine_server.url}"))
    judgement = await judge.judge(ASKED, COMPLAINT)
    await judge.close()
    assert judgement.score is None and judgement.votes[0].text
    assert judgement.judge == ("engine:tiny" if by == "folder" else f"engine:{engine_server.url}")


async def test_a_scripted_engine_elsewhere_gets_no_secret(prompter: Prompter) -> None:
    pytest.importorskip("detect_secrets")
    engine = SpeakingEngine(prompter, "Well. \\boxed{1}", "Well. \\boxed{1}")
    outgoing = Outgoing.to_model(settings(), "", "http://10.0.0.7:30000")
    key = f"ghp_{'a1B2' * 9}"
    for one in (None, outgoing):
        lazy, given = ready(prompter), settings(judge_max_tokens=80)
        asker = EngineAsker("engine", engine, lazy, given, version=None, own=False, outgoing=one)  # type: ignore[arg-type]
        await asker.ask(f"Was {key} right?")
    assert [key in question for question, *_ in engine.asked] == [True, False]
    assert "Was [SECRET] right?" in engine.asked[-1][0]
