"""The story of a turn, as sentences: what the command line prints and the dashboard shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.conversation.classify import describe
from openclaw_rl.shared.journal.step_statistics import mean_vote, statistics
from openclaw_rl.shared.journal.views import GroupAttempt
from openclaw_rl.shared.messages.normalize import is_internal_context
from openclaw_rl.shared.records import AGENT, Vote
from openclaw_rl.shared.wording import ago, score

_VOTE_CHARACTERS = 1000


def story(known: Mapping[str, Any]) -> Iterator[str]:
    """The story of a turn in order, one sentence a line."""
    turn = known["turn"]
    when = ago(turn["timings"]["arrived"])
    yield f"{turn['turn_id']} in session {turn['session_id']}, episode {turn['episode']}, {when}."
    yield f"Asked: {_clip(_asked(turn))}"
    yield f"Answered: {_clip(_answered(turn['answer']))}"
    if turn["parent_turn_id"]:
        how = f" ({turn['parent_reason']})" if turn["parent_reason"] else ""
        yield f"It continues {turn['parent_turn_id']}{how}."
        if known.get("extends_parent"):
            yield "Its prompt continues the very tokens of that turn."
        elif known.get("extends_parent") is False:
            yield "Its prompt does not begin with the tokens of that turn: history or spelling differ."
    else:
        yield f"It continues no earlier turn: {turn['parent_reason'] or 'a conversation begins here'}."
    yield f"It was taken as {turn['kind']}: {describe(turn['kind_reason']) or turn['kind_reason']}."
    if turn["status"] != "complete":
        yield f"The answer is {turn['status']}{': ' + turn['error'] if turn['error'] else ''}, so it is not trained on."
    elif turn["error"]:
        yield f"Of the answer: {turn['error']}."
    if turn["untrainable"]:
        yield f"It must not be trained on: {turn['untrainable']}."
    yield from _afterwards(known)
    yield from _judged(known)
    yield from _compared(known)
    yield from _audited(known)
    yield from _learned(known)


def _afterwards(known: Mapping[str, Any]) -> Iterator[str]:
    came = known.get("next_state")
    if came:
        yield f"Next came, from {_origin(came)}: {_clip(came['text'])}"
        if came.get("weak"):
            yield (
                "That request has another system text and other tools, so it may not be a reaction: one of the "
                "conversation itself will replace it."
            )
        if came.get("instead_of"):
            yield (
                f"It replaces what came first, with {came['instead_of']}: a request with another system text and "
                "other tools is weaker evidence of a reaction."
            )
    else:
        yield "Nothing has come after it yet."
    for said in known.get("feedback", ()):
        words = f": {_clip(said['text'])}" if said["text"] else ""
        yield f"Explicit feedback {score(said['score'])} ({said['source']}, {ago(said['time'])}){words}"
    outcome = known.get("outcome")
    if outcome:
        reward = outcome["reward"]
        yield "The session's outcome: " + ("no verdict" if reward is None else score(reward)) + "."


def _origin(came: Mapping[str, Any]) -> str:
    return "another agent, in the user's role" if came.get("source") == AGENT else f"the {came['role']}"


def _judged(known: Mapping[str, Any]) -> Iterator[str]:
    judgements = known.get("judgements", ())
    for judged in judgements:
        because = f": {judged['reason']}" if judged["reason"] else ""
        judge = judged["judge"] or "a judge"
        by = f"{judge} ({judged['prompt_version']})" if judged["prompt_version"] not in ("", judge) else judge
        verdict = "without a verdict" if judged["score"] is None else score(judged["score"])
        yield f"Judged {verdict} by {by} from {judged['signal']}{because}."
        yield from _votes(judged)
        if judged["hint"]:
            how = f" ({judged['selection']})" if judged["selection"] else ""
            yield f"The hint that came of it{how}: {_clip(judged['hint'])}"
    if known.get("waiting"):
        yield "It waits for a judge."
    elif known.get("awaits_outcome") and not judgements:
        yield "It waits for the outcome; no judge gets it before."
    elif not judgements and known["turn"]["kind"] == "main":
        yield "It has not been judged."


def _votes(judged: Mapping[str, Any]) -> Iterator[str]:
    """Every vote with its text; a single one that says no more than the reason is not shown twice."""
    votes = judged["votes"]
    if len(votes) == 1 and not votes[0]["failure"] and votes[0]["text"] in ("", judged["reason"]):
        return
    for number, vote in enumerate(votes, start=1):
        about = "Hint vote" if vote.get("about") == "hint" else "Vote"
        if vote["failure"]:
            said = f"failed: {vote['failure']}"
        elif vote["score"] is None:
            said = "a hint" if vote["hint"] else "no hint"
        else:
            said = score(vote["score"])
        hint = f", hint {_clip(vote['hint'])}" if vote["hint"] else ""
        text = f"; it said {_clip(vote['text'], _VOTE_CHARACTERS)}" if vote["text"] else ""
        yield f"  {about} {number}: {said}{hint}{text}"


def _compared(known: Mapping[str, Any]) -> Iterator[str]:
    """The turn's place among the attempts at its task, and the numbers that its advantage comes from."""
    attempt = known.get("attempt")
    if attempt is None:
        return
    at = f" at {attempt['task']}" if attempt["task"] else ""
    place = f"step {attempt['step_index'] + 1}"
    if not attempt["group"]:
        yield f"It is {place} of an attempt{at}, which is compared with no other."
        return
    members = msgspec.convert(attempt["members"], list[GroupAttempt])
    number = [(one.session_id, one.episode) for one in members].index((attempt["session_id"], attempt["episode"])) + 1
    mine, index = members[number - 1], attempt["step_index"]
    of = f"It is {place} of attempt {number} of {max(attempt['attempts'], len(members))}{at}"
    if mine.outcome is None and known.get("awaits_outcome"):
        yield f"{of}, whose outcome is still to come."
        return
    if mine.outcome is None or mine.steps[index].reward is None:
        yield f"{of}, and has no reward to compare with the others."
        return
    judged = known["judgements"][-1]
    vote = mean_vote(msgspec.convert(judged["votes"], list[Vote]))
    votes = "" if vote is None else f", votes mean {vote:.2f}"
    among = statistics(members)[index]
    line = f"{of}: outcome {mine.outcome:g}{votes}, group mean {among.mean:.2f}, std {among.deviation:.2f}"
    if among.count < 2:
        line += "; no other attempt has this step, so its reward counts as it is"
    elif among.constant:
        line += "; all are the same, so there is nothing to compare"
    yield f"{line}."


def _audited(known: Mapping[str, Any]) -> Iterator[str]:
    audit = known.get("audit")
    if audit is None:
        return
    if audit["verdict"] in ("aligned", "misaligned"):
        result = "its logprobs hold" if audit["verdict"] == "aligned" else "ITS LOGPROBS ARE WRONG"
        yield f"Audited with version {audit['version']}, {ago(audit['time'])}: {result}: {audit['reason']}."
    else:
        yield f"An audit of it was skipped: {audit['reason']}."


def _learned(known: Mapping[str, Any]) -> Iterator[str]:
    samples = known.get("samples", ())
    no_ratio = known.get("no_ratio")
    if no_ratio and samples:
        yield f"It was {no_ratio}: a hint on it teaches, its score does not."
    for sample in samples:
        match sample["state"]:
            case "ready":
                yield "It is ready and waits for the next step."
            case "consumed":
                yield f"Version {sample['version']} ({sample['version_state']}) learned from it."
            case "known":
                yield "A step found nothing left to learn from it."
            case "quarantined":
                by = "" if sample["version"] is None else f" with version {sample['version']}"
                yield f"Its sample was set aside{by}."
    aside = known.get("quarantine")
    if aside:
        yield f"It is set aside: {aside['reason']}."
    if not samples and not aside:
        yield "Nothing has learned from it."


def _asked(turn: Mapping[str, Any]) -> str:
    spoken = [
        message
        for message in turn["messages"]
        if message["role"] in {"user", "tool"} and not is_internal_context(message)
    ]
    return _text(spoken[-1]) if spoken else "(nothing)"


def _answered(answer: Mapping[str, Any]) -> str:
    calls = ", ".join(f"{call['name']}({call['arguments']})" for call in answer.get("tool_calls", ()))
    return " ".join(part for part in (_text(answer), f"[calls {calls}]" if calls else "") if part) or "(nothing)"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join("(an image)" if part.get("type") == "image_url" else str(part.get("text", "")) for part in content)


def _clip(text: str, longest: int = 400) -> str:
    line = " ".join(text.split())
    return f"“{line}”" if len(line) <= longest else f"“{line[:longest]}…” ({len(text)} characters)"
