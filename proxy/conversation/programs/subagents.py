"""System texts, and tasks, that tell an agent that it works for another agent."""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import mentions, reads_text

_SEARCHED = 4000
_WORDS = ("agent", "orchestrat", "caller", "supervisor", "main assistant", "the user", "researcher", "the parent")
"""One of these is in every such text."""

_WORD = r"(?:(?!(?:that|which|who|whose|can|could|with|to|and|for|of|in|on|able|has|have|uses?)\b)[\w/'’,-]+ )"
_RANK = (
    r"(?:parent|main|lead|primary|calling|root|outer|top-level|orchestrat\w+|coordinat\w+|supervis\w+|manager"
    r"|master|delegating)"
)
_PARENT = (
    rf"(?:{_RANK}(?: (?:ai|coding|llm))?[ -](?:agent|assistant|model|session|thread|process|instance|researcher"
    rf"|analyst|engineer|planner|conversation)\b|orchestrator\b|supervisor\b"
    r"|coordinator\b|planner agent\b)"
)
_ANOTHER = r"another (?:ai |llm |coding )?(?:agent|assistant|model|language model)\b"
_GIVEN = (
    r"(?:spawned|launched|created|started|invoked|called|dispatched|delegated|assigned|deployed|tasked|triggered"
    r"|run|sent|handed|used)"
)
_PLAY = r"\byou(?:['’]re| are| were| have been)(?: now| currently)?"

_SUBAGENT = re.compile(
    # what it is
    rf"{_PLAY}(?: running as| acting as)? (?:an?|the) {_WORD}{{0,6}}?"
    r"(?:sub[- ]?agent|child agent)\b(?! (?:orchestrat|manag|coordinat|design|creat|build|architect|expert))"
    r"|\A\W*(?:\[|# ?|<)?sub-?agent (?:context|instructions|task|mode)\b"
    rf"|{_PLAY} (?:an? |one )?(?:of )?{_WORD}{{0,3}}?(?:worker|member|specialist|agent)s? (?:in|of"
    rf"|within) (?:an? |the )?(?:larger )?"
    r"(?:team|crew|group|swarm|multi-agent)\b[^\n]{0,200}\b(?:supervisor|orchestrator|lead|manager|coordinator"
    r"|main agent)\b"
    # whom it works for
    rf"|\b(?:(?:work(?:ing)?|act(?:ing)?) (?:for|on behalf of|under)|{_GIVEN}(?: to you)? by) (?:an?|the"
    rf"|your) {_PARENT}"
    rf"|\b(?:work(?:ing)?|act(?:ing)?|task|job|helping|complet\w+)\b[^\n.]{{0,60}}\b(?:for|on behalf of) {_ANOTHER}"
    rf"|{_PLAY} {_GIVEN}\b[^\n.]{{0,60}}\bby (?:an?|the|your|another) (?:[\w-]+ ){{0,2}}?(?:agent|assistant"
    rf"|orchestrator|supervisor|model)\b"
    rf"|\b(?:the|your|an?) {_PARENT}[^\n.]{{0,30}}\b(?:has |have )?(?:{_GIVEN}|delegat\w+|assigned|gave"
    rf"|given) (?:you|this|the)\b"
    rf"|\b{_ANOTHER} (?:has )?(?:{_GIVEN}|delegat\w+|gave|asked|handed)\b[^\n.]{{0,40}}\byou\b"
    rf"|{_PLAY} (?:an? )?(?:[\w-]+ )?(?:agent|assistant|instance|worker) {_GIVEN} (?:for|to)\b"
    # whom it reports to
    r"|(?:\A|[.!?:\n]\W{0,4})(?:(?:then|finally|always|you(?: must| should| will)?) )?(?:report|return|respond|hand"
    r"|answer|send|deliver)s?\b"
    rf"[^\n.]{{0,80}}\bto (?:the|your) (?:{_PARENT}|caller\b|calling agent\b)"
    r"|\byour (?:final |last |complete )?(?:message|response|report|answer|output|result|summary"
    r"|findings)\b[^\n.]{0,40}\b(?:goes|go|is|are"
    rf"|will be|gets|get)\b[^\n.]{{0,40}}\b(?:to|by) (?:the|your|an?) (?:{_PARENT}|caller\b|calling agent\b)"
    rf"|\b(?:the|your) {_PARENT} (?:only|will only|can only|just) (?:sees|receives|gets|reads|see|receive|get|read)\b"
    r"|\byour (?:\w+ )?(?:findings|results?|report|output|answer|verdict|summary|work)\b[^\n.]{0,40}\b(?:for|back to"
    r"|to|by) the "
    rf"(?:{_PARENT}|(?:agent|assistant|model|process|one) (?:that|who|which) (?:invoked|called|started|launched"
    rf"|spawned|delegated|asked))"
    r"|\b(?:returned|shown|sent|passed|visible|given) (?:back )?(?:only )?to the (?:parent|caller)\b"
    r"|\bchild (?:process|session|thread"
    r"|conversation) of\b|\bas (?:a|the) delegate of\b|\bno human (?:is|will be) (?:reading|watching)"
    # whom it does not talk to
    r"|\bthe user (?:does not|doesn['’]t|cannot|can['’]t|will not|won['’]t|never) (?:see|sees|read|reads) (?:your"
    r"|this|these)\b",
    re.IGNORECASE,
)
_OTHER_LANGUAGES = re.compile(
    r"(?:你是|作为)[^\n。]{0,20}(?:子代理|子智能体|子 ?agent|subagent)"
    r"|(?:返回|汇报|报告)给(?:主|父)(?:代理|智能体| ?agent)"
    r"|\bdu bist (?:ein\w* )?(?:unter|sub)-?agent|\b(?:dem|der|vom) (?:haupt|über)agent\w* (?:berichte|hat dir"
    r"|beauftragt)"
    r"|\beres un (?:sub-?agente)|\btu es un (?:sous-agent)|\bvocê é um subagente|ты (?:—|-)? ?(?:субагент|подагент)"
    r"|サブエージェントです|서브 ?에이전트입니다",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"\byou (?:are|act as) (?:an?|the) (?:[\w-]+ ){0,2}?(?:lead|main|primary|orchestrat\w+|coordinat\w+"
    r"|supervis\w+|manager)"
    r"(?: [\w-]+)? ?(?:agent|assistant)?\b|\byou (?:can|may) (?:launch|spawn|start|delegate)",
    re.IGNORECASE,
)
"""The system text of one that has others work for it."""
_TASK = re.compile(
    r"\A\W*(?:(?:delegated|assigned) (?:sub-?)?task\b|(?:sub-?)?task (?:delegated |assigned )?(?:from|by) (?:the "
    r"|your |an? )?"
    rf"{_PARENT}|you are working as (?:a|the) delegate\b|sub-?task \d+ (?:of|/) \d+\b|you are (?:an?"
    rf"|the) (?:[\w-]+ ){{0,3}}?sub-?agent\b|\[?(?:sub-?agent|delegated) task\b"
    rf"|(?:message|request|instructions?|assignment) from (?:the |your )?{_PARENT})",
    re.IGNORECASE,
)
"""The beginning of a task that another agent gives in the user's role."""


@reads_text()
def is_subagent(system: str) -> bool:
    """True if the system text is a sub-agent's."""
    opening = system[:_SEARCHED]
    if _OTHER_LANGUAGES.search(opening):
        return True
    if not mentions(opening, _WORDS):
        return False
    found = _SUBAGENT.search(opening)
    return found is not None and (_LEADS.search(opening, 0, 600) is None or "sub" in found[0].lower())


@reads_text()
def is_delegated(text: str) -> bool:
    """True if another agent gives the task that opens a conversation."""
    return _TASK.match(text[:400]) is not None
