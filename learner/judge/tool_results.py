"""Tell whether a tool failed or worked, by the result that it gave, or that the result does not tell.

Structure comes first, words last:

1. The client's own mark (`is_error` of the Messages API).
2. Fields of a JSON object, or of a Python one in print: error marks, exit codes, HTTP statuses, status words, errors.
3. The exit code in the lines that a harness puts around the output, in any spelling.
4. The first line, where it is the harness's own report of a failure. In plain words it is one only if it is short.
5. Lines at both ends of the output that programs end with when they fail.

A result that reports no failure is one of a tool that worked, unless it does not tell (`silent_results`).

Text that was only read (a file, search hits, a page, a log) holds other people's errors. So the call decides how much
counts: of a tool that reads, or a shell command that does, the fifth step is left out, and the fourth counts only for a
short result; plain words count if they name what the call named.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from openclaw_rl.learner.judge.silent_results import is_empty, is_open, is_without_hit, says_nothing
from openclaw_rl.shared.records import NextState, Turn
from openclaw_rl.shared.text_reading import any_of, reads_text

_LONGEST = 20_000
"""Characters that are read at each end of a result, and at most of an object in print."""
_SHORT_LINES, _SHORT = 6, 800
"""Lines and characters of a result that may be a mere report of a failure."""
_HEAD, _TAIL = 4, 6
"""Lines at both ends where a harness or a program says how it ended."""
_DEPTH = 3

_NOTHING = frozenset(["", "none", "(none)", "null", "nil", "undefined", "n/a", "no", "false", "0", "-", "{}", "[]"])
"""Texts after "Error:" that mean that there was none."""

# Fields of objects, spelled without case, `_` and `-`.
_FAILED_IF_TRUE = frozenset(["iserror", "haserror", "failed", "timedout", "interrupted", "aborted"])
_FAILED_IF_FALSE = frozenset(["success", "succeeded", "successful", "ok"])
_EXIT_CODES = frozenset(["exitcode", "exitstatus", "returncode", "returnvalue", "returnstatus", "rc"])
_STATUSES = frozenset(["status", "statuscode", "httpstatus", "httpstatuscode", "state", "outcome", "type"])
_ERRORS = frozenset(["error", "errormessage", "exception"])
_INNER = frozenset(["metadata", "meta", "result", "details", "structuredcontent"])
"""Fields whose object says how the tool ended, where the outer one does not."""
_SOURCES = frozenset(["path", "file", "filename", "file_path", "filePath", "url", "uri", "title"])
"""Fields of an object that holds a text from somewhere."""
_BAD_STATUS = frozenset(
    [
        "error",
        "errored",
        "failed",
        "failure",
        "fail",
        "denied",
        "forbidden",
        "timeout",
        "rejected",
        "aborted",
        "cancelled",
    ]
)
_GOOD_STATUS = frozenset(["ok", "success", "succeeded", "successful", "completed", "complete", "done", "passed"])

_EXIT = re.compile(
    r"(?:\bexit(?:ed)?[ _-]?(?:code|status|value)|\bexited(?: with)?|\breturn(?:ed)?[ _-]?(?:code|status|value)"
    r"|\brc\b"
    r"|(?<=[\[(])exit)(?: (?:with|of|is|was|code|status|non-?zero))*[\"'>:=\s(]{0,4}(-?\d+)",
    re.IGNORECASE,
)
_OUTPUT_BEGINS = re.compile(r"^\W*(?:output|stdout|result)\W*$", re.IGNORECASE)
_EXPLAINED = 120
"""Characters of a line that is a harness's own: what was read has longer ones."""


def _line(*beginnings: str) -> re.Pattern[str]:
    """Matches a line that begins in one of these ways."""
    return re.compile("^(?:" + "|".join(beginnings) + ")", re.IGNORECASE)


_MEASURED = re.compile(
    r"(?:[\w.-]+ ){1,4}error\b[^:\n]{0,12}: [-+~≈]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+|%)%?\W*\Z", re.IGNORECASE
)
"""A measure that is called an error: "mean squared error: 0.12"."""
_COUNTED_NONE = re.compile(
    r"[\W_]{0,6}(?:\w+ ){0,3}?(?:failed|failures?|errors?)\b(?: \w+)?\s?[:=]\s?0\b(?![.,x]\w| of\b| ?/)",
    re.IGNORECASE,
)
"""A count of failures: there were none."""
_ERROR_LINE = _line(r"[\W_]{0,6}(?:\w+ ){0,4}?(?:error|exception|failure)\b[^:\n]{0,12}:\s*(?P<what>[^\n]*)$")
_NOTHING_WRONG = r"(?! (?:find|see|spot) any(?:thing wrong| (?:\w+ )?(?:errors?|problems?|mistakes?))\b)"
_REPORT = _line(
    # an error, by its name
    r"[\w.]*(?:Error|Exception)\b\s*(?:[:!>(\]]|$)|[a-z_]\w*(?:\.\w+)*\.(?-i:[A-Z])\w+: ",
    r"[^\n.:]{0,60}\bis not unique\b|navigation failed\b",
    r"(?:[\w-]+ ){0,4}(?:error|exception|failure)\b\s*(?:[:!>(\]]|-?\d|$)",
    r"error (?:while|when|during|executing|calling|running|invoking|reading|writing|in|at|from|occurred)\b",
    r"error (?:response )?from [\w -]{1,40}(?:\([\w ]{1,40}\))?:",
    r"<[\w-]*error>|traceback \(most recent call last\)|(?:fatal|panic)\b\s*:|\d+ validation errors? for\b",
    r"E(?:NOENT|ACCES|ISDIR|EXIST|PERM|CONNREFUSED|TIMEDOUT|NOTFOUND|NOTDIR|CONNRESET)\b",
    r"\[?errno -?\d+\b|net::ERR_\w+|\W{0,3}(?:es ist )?(?:ein )?fehler\b[^\n]{0,40}(?::|aufgetreten)"
    r"|erreur\b[^\n]{0,30}:|errore\b"
    r"[^\n]{0,30}:|(?:se produjo|ha ocurrido|ocurrió) un error|ошибка\b|(?:错误|出错了?|失败|エラー|오류)\s*[:：!！]",
    r"(?:the )?(?:search|diff|patch|hunk|old|replace\w*|edit)\b[^\n]{0,60}\b(?:does not|doesn't|do not|did not"
    r"|didn't|could not be|cannot be"
    r"|failed to) (?:match|apply|applied|be applied|found|be found)\b",
    r"(?:the )?(?:sub-?)?(?:agent|job|workflow|run|deployment|upload|download|login|payment|transaction|migration"
    r"|query|import|export"
    r"|installation|action|call|execution|invocation|operation)(?: \w+)? failed\b",
    r"HTTP(?:/\d\S*)?(?: error| status)?:? ?[45]\d\d\b"
    r"|(?:status(?: code)?:? )?[45]\d\d (?:[A-Z][a-z]+ ?)+(?:[:.(]|$)",
    # what was not possible
    r"failed\b(?! tests?\b)(?: to\b|:|$| \w+)",
    rf"(?:i |we )?(?:could not|couldn't|cannot|can't|can not|unable to)\b{_NOTHING_WRONG}",
    r"(?:invalid|unknown|unrecognized|unsupported|missing|ambiguous|malformed|unexpected) (?:required )?"
    r"(?:tool|command|option|argument|parameter|input|json|path|file|format|value|recipient|target|session|name"
    r"|id|key|query|url|range)s?\b",
    r"(?:no such|not a valid)\b",
    r"(?:the )?(?:last )?(?:tool|function|file|path|command|directory|module|resource|page|url|request|search|task)"
    r"\b[^\n:]{0,80}\b(?:not found|does not exist|not available|timed out|failed)\b",
    r"[\w ,'\"-]{0,60}\b(?:timed out|time-?out exceeded|(?:aborted|killed) by signal|segmentation fault)\b",
    r"(?:string|text|pattern|old[_ ]?(?:string|text|str)|match)\b[^\n:]{0,60}\bnot (?:be )?found\b",
    r"[^\n]{0,60}\bmust be unique\b|found \d+ (?:occurrences|matches) of\b",
    r"[^\n]{0,80}\b(?:beyond|past) (?:the )?end of (?:the )?file\b|[\w.-]{1,40} is not available right now\b",
    # what the model wrote wrongly
    r"please (?:always )?provide exactly\b|no (?:valid )?(?:tool calls?|actions?|code blocks?)\b[^\n]{0,40}\bfound\b",
    r"(?:your )?(?:last |previous )?(?:response|output|reply|answer|message)\b[^\n]{0,80}"
    r"\b(?:invalid|not valid|could not be|failed|reached the|truncated|cut off|is empty|was empty|had)\b",
    # what was not allowed
    r"(?:permission|access|exec|request|operation|command)(?: was)? (?:denied|refused|rejected|forbidden|blocked)\b",
    r"(?:the )?user (?:has )?(?:rejected|declined|denied|refused|cancell?ed|does(?:n't| not) want|aborted)\b",
    r"(?:tool (?:use|call|execution)|command|request) (?:was )?(?:rejected|declined|denied|cancell?ed|aborted)\b",
)
"""The first line of a result that reports a failure."""
_NAMED = re.compile(
    r"https?://[^\s'\"`]+|(?<!\w)'[^'\n]{1,300}'(?!\w)|\"[^\"\n]{1,300}\"|`[^`\n]{1,300}`"
    r"|(?<![\w.])(?:[A-Za-z]:|~|\.{0,2})[\\/][^\s'\"`,;:]+"
    r"|(?<![\w./\\])[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,4}\b(?!\()"
)
"""A path, a file or a quoted name in a line."""
_FOUND = re.compile(r"\W{0,6}(?:errors?|failed|failures?|fatal|panic|denied)\b", re.IGNORECASE)
"""How words of a failure begin that may be those of a text."""
_UNREAD = any_of(
    r"\bnot (?:be )?(?:found|exist\w*|a (?:file|directory|valid)|readable|accessible|allowed|available|permitted)\b",
    r"n['’]t exist\b|\bno such\b|\b(?:denied|forbidden|refused|unauthori[sz]ed|unreachable|unavailable|unsupported)\b",
    r"\b(?:unknown|invalid|missing|required|timed? ?out|time-?out|aborted|cancell?ed|reject\w+|interrupted|blocked)\b",
    r"\b(?:too (?:large|long|many)|exceed\w*|outside|beyond|limit|quota|network|connect\w*|ssl|dns|host|server)\b",
    r"\b(?:status|https?|[45]\d\d|while|when|during|errno|\w+(?:Error|Exception))\b|(?-i:\b[A-Z_]{5,}\b)",
    r"\b(?:could not|couldn['’]t|cannot|can['’]t|unable to|failed to) ",
    r"\b(?:failed|error) (?:read|open|load|fetch|access|search|query|runn?|execut|call|pars|retriev|list|decod)\w*",
)
"""Why a tool that reads reads nothing."""
_NAME = "XNAMEX"
"""Stands for it: its length and its signs say nothing."""
_THING = (
    rf"(?:the |this |that |your |a )?(?:(?:{_NAME}|path|file|folder|directory|tool|function|agent|sub-?agent|session"
    r"|command|url|page|resource|task|argument|parameter|pattern|operation|request|access to|service|entity"
    r"|device|user|item|order"
    r"|event|record|row|table|column|key|account|project|branch|issue|ticket|channel|contact|city|location"
    r"|element|node|package"
    r"|module|variable|method|endpoint|route|repository|customer|product|document|message|job|image|container|tab"
    r"|window)\b ?)"
    r"(?:[\w.-]+ ){0,4}?"
)
_PLAIN = _line(
    # it is not there, or not as it should be
    rf"{_THING}(?:(?:does|did)(?: not|n't) exist|(?:was |is |could |were |cannot be |can't be )?not (?:be )?found"
    r"|(?:is|was|are) (?:not (?:allowed|permitted|supported|available|accessible|absolute|readable|valid|a )|invalid"
    r"|a (?:directory|folder|file)\b|outside|too (?:large|long|big)|read-?only|locked|missing|denied|forbidden)\b"
    r"|already exists\b|must be (?:an? )?(?:absolute|relative|inside|within|valid)|failed\W*$)"
    r"\b(?!, (?:so|and|but|as)\b)",
    r"[^\n.:]{0,60} (?:is not (?:a valid|recognized)|does(?: not|n't) exist|is required)\b",
    rf"(?:there (?:is|was|are|were) )?no (?:such )?(?:{_NAME} |file|tool|function|agent|folder|directory|path|page"
    r"|session|command)(?:s? (?:at|named|called|with|for|found)\b|\W*$|s? ?: ?\S)",
    # it was not possible, or not allowed
    r"(?:sorry[,.:]? )?(?:but )?(?:i|we) (?:(?:was|were|am|are) (?:unable|not able) to|can't|cannot|could not"
    rf"|couldn't){_NOTHING_WRONG}"
    r" (?:find|open|read|access|load|run|execute|write|complete|locate|reach|connect)\b",
    r"(?:you are|it is|this is) not (?:allowed|permitted)\b",
    r"(?:bad request|unauthori[sz]ed|forbidden|too many requests|rate limit(?:ed)?(?: was)?(?: exceeded| reached)?"
    r"|quota exceeded|internal server error|service unavailable|not found|gateway time-?out)\W*$",
    rf"{_THING}(?:is|was|are) (?:currently )?(?:unavailable|offline|unreachable|disconnected|not unique"
    rf"|not authori[sz]ed|closed for)\b",
    rf"{_THING}(?:has been|was) (?:modified|changed|deleted|moved) since\b|{_THING}(?:has )?expired\b"
    rf"|{_THING}[^\n]{{0,40}}\bcannot be (?:displayed|read"
    r"|opened|edited|found|reached|loaded|parsed)\b",
    r"refus(?:ing|ed) to\b|[^\n.:]{0,60}\b(?:validation|click|navigation|tap|scroll|authentication"
    r"|authori[sz]ation|connection|lookup|parsing"
    r"|verification|compilation|check|sync|update|booking|purchase|step) failed\b|[^\n.:]{0,40}\b(?:was"
    r"|is) unsuccessful\b",
    r"(?:[^\n.:]{0,40}\b)?(?:token|session|key|link|licen[sc]e|subscription|certificate|password|login"
    r"|credentials?) (?:has |have |is |are )?(?:expired"
    r"|invalid|revoked)\b|rate[- ]limit(?:ed)?\b|(?:\w+ )?quota (?:has been )?exceeded\b|insufficient (?:funds"
    r"|permissions?|privileges?|balance"
    r"|rights|credits?|space|memory|data)\b|not authori[sz]ed\b|unauthori[sz]ed\b",
    r"(?:you|user|we|i|the user|this \w+|your \w+)(?: \w+)? (?:do|does|are|is)(?: not"
    r"|n't) (?:have (?:the )?(?:permissions?|access|rights?|privileges?)"
    r"|authori[sz]ed|permitted|allowed)\b|[^\n]{0,60}\bERR_[A-Z_]{4,}",
    # in other languages
    r"[^\n]{0,60}(?:\bnicht gefunden\b|\bfehlgeschlagen\b|\bkonnte[n]? nicht\b|\bzugriff verweigert\b"
    r"|\bkeine verbindung\b|\bnicht (?:möglich"
    r"|verfügbar|erlaubt)\b|\bno se (?:pudo|encontr[óo]|puede)\b|\bfall[óo]\b|\bimpossible de\b|\bintrouvable\b"
    r"|\ba échoué\b|\bnão foi possível"
    r"|\bnão encontrad|\bimpossibile\b|\bnon trovato\b|не удалось|не найден|отказано|失败|无法|不存在|被拒绝|没有权限"
    r"|失敗|見つかりません|できません"
    r"|실패|찾을 수 없)",
    # it was stopped
    r"(?:rejected|cancell?ed|declined|denied|interrupted|stopped|aborted) by (?:the )?user\b",
    r"(?:the )?(?:execution of )?(?:this |the )?(?:tool|operation|command|request|task|call|execution|run)\b"
    r"(?: call| use)?(?:,[^\n,.]{0,40})? ?(?:(?:was|has been|is) )?(?:interrupted|cancell?ed|aborted|terminated"
    r"|rejected)\W*$",
)
"""A short result that says in plain words that nothing was done."""
_NO_PLACE = _line(
    r"(?:no|multiple|several|\d+) match(?:es)?(?: (?:was|were))? found(?: (?:for|in|of) [^\n]{0,80})?\W*$",
    r"no (?:replacement|change|edit)s? (?:was|were) (?:performed|made)\b",
)
"""A change that found no place, or several."""
_DECORATION = re.compile(r"^(?:\s*<[\w-]+>)?[\W_]{0,8}")
"""A tag or signs before the report's words."""
_ENDING = _line(
    # an exception, as interpreters print it
    r"traceback \(most recent call last\)|[\w.]*(?:Error|Exception|KeyboardInterrupt)\b(?::|$)",
    # how programs and shells say it
    r"(?:fatal|error|panic)\s*(?::|!|\[\w+\])|npm (?:err!|error)|err!|error\[\w+\]:|make(?:\[\d+\])?: \*\*\*",
    r"(?:[^\s:]+: )+(?:\d+: |line \d+: |[^\n:]{0,80}: )?[^\n:]{0,80}(?:command not found|not found|permission denied"
    r"|no such file or directory|(?:is|not) a directory|connection refused|operation not permitted)\.?\s*$",
    r"command not found\b|[^\n]{0,80}\bis not recognized as\b|[^\n]{0,60}\b(?:connection refused|timed out)\.?\s*$",
    r"signal: (?!\(?none|null|0\b)\w|segmentation fault\b|killed$|aborted$|build failed\b|failed\b|\W*FAILED\W",
    r"[\w.+-]{1,30}: (?:fatal )?error: |[\w ]{1,30}: FAILED\b",
    r"\[(?:error|fatal)\] |(?:\[\w+\] )?build fail(?:ure|ed)\b|FAIL\s+\S+\.\w+"
    r"|[✖✗×✘] \d+ (?:problems?|errors?|failures?)\b"
    r"|an error occurred\b|\w+: \(\d+\) "
    r"|(?:[^\s:]+: )+command not found: |[a-z_]\w*(?:\.\w+)+\.[A-Z]\w+: ",
    r"--- FAIL:|FAIL(?:ED|URE)?\b(?!\w)\s*(?:$|[\t:!])|CONFLICT \(|automatic merge failed\b|[│|╷ ]{1,8}error\b ?:",
    # a test run
    r"E   +\w+(?:Error|Exception)\b",
)
"""A line at an end of a program's output that says that it failed."""
_COMPILER = _line(r"[^\s:()]{1,200}(?:\(\d+,\d+\)|:\d+(?::\d+)?):? (?:fatal )?error\b")
"""A compiler's line."""
_TESTS = _line(
    r"\W*[1-9]\d* (?:of|out of|/) \d+ (?:[\w-]+ )?failed\b|[^\n]{0,80}\b(?:failures|failed)(?:: ?|=)[1-9]\d*\b"
    r"|\W*found [1-9]\d* errors?\b",
    r"\W*(?:[\w ]{0,20}: ?)?(?:\d+ \w+, )*[1-9]\d* (?:failed|failures?|failing|errors?)\b[^\n]{0,80}$",
)
"""A test run's last line."""
_FAILING = re.compile(r"\s{1,4}[1-9]\d* (?:failing|failed)(?: \(\w+\))?\Z")
"""Such a line, as test programs indent it."""
_QUOTED = _line(
    r"\s{2,}|\t|\s*\d+\s*[\t:|→]|[\w./\\-]+[:-]\d+[:-]",  # code, a numbered listing, hits of a search
    r"\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:",  # a log
    r"[-+*>|]\s|#{1,6}\s|<(?:!doctype|html|\?xml)\b",  # a document
)
"""A line of a text that was only read."""

# Words in the names of tools that read, and of those that change or run something.
_READS = frozenset([
    "read", "view", "open", "cat", "get", "fetch", "search", "grep", "glob", "find", "list", "ls", "show",
    "browse", "crawl", "scrape", "lookup", "query", "load", "recall", "retrieve", "inspect", "describe",
    "extract", "tail", "head", "log", "logs", "look", "history", "web",
])  # fmt: skip
_ACTS = frozenset([
    "write", "edit", "create", "update", "delete", "remove", "replace", "patch", "apply", "insert", "move",
    "rename", "send", "post", "run", "exec", "execute", "shell", "bash", "terminal", "command", "cmd",
    "process", "python", "code", "test", "click", "type", "press", "submit", "set", "add", "install", "kill",
])  # fmt: skip
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_COMMAND_FIELDS = ("command", "cmd", "script", "input", "commands", "keystrokes")
_SEPARATORS = re.compile(r"&&|\|\||[;\n|]")
_READERS = _line(
    r"(?:sudo )?(?:cat|bat|head|tail|less|more|nl|sed -n|grep|egrep|fgrep|rg|ag|ack|find|fd|ls|tree|awk|jq|yq|wc|sort"
    r"|uniq|cut|tr|column|strings|xxd|stat|file|journalctl|dmesg|curl|wget|type|get-content|select-string|echo|printf"
    r"|git (?:-\S+ )*(?:log|show|diff|grep|blame|status)|(?:docker|kubectl)(?: compose)? logs?|cd|pushd|export)\b"
)
"""Shell commands that read."""
_SILENT = _line(
    r"(?:sudo )?(?:mkdir|mv|cp|rm|rmdir|touch|ln|chmod|chown|cd|pushd|export|set|unset|source|sleep|kill|sed -i"
    r"|tee|git (?:-\S+ )*"
    r"(?:add|rm|mv|config|tag|branch|restore|checkout -q)|new-item|copy-item|move-item|remove-item|md|del|copy"
    r"|move|ren)\b"
)
"""Shell commands that print nothing when they work."""
_REDIRECTED = re.compile(r"(?<![\d&])>>? ?[^\s&>]+")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?%?")
_SHELL_BLOCK = re.compile(r"```(?:\w*(?:bash|sh|shell|zsh|console|powershell|cmd)\w*)[ \t]*\n(.*?)```", re.DOTALL)
"""A command in the text of an answer."""
_ANSWERS_BY_CODE = _line(r"(?:sudo )?(?:grep|egrep|fgrep|rg|ag|ack|diff|cmp|test|\[|git (?:diff|grep)|pgrep|which)\b")
"""Commands that exit with 1 where they find nothing, or a difference."""

_SEARCHES = frozenset(["search", "grep", "glob", "find", "lookup", "query", "recall", "retrieve", "ask"])
_ENDS_WORK = frozenset(
    ["cancel", "stop", "kill", "abort", "terminate", "end", "close", "interrupt", "reject", "decline", "deny"]
)
_ENDED = frozenset(
    ["cancelled", "canceled", "aborted", "rejected", "terminated", "stopped", "killed", "denied", "declined"]
)
"""Words of success for tools that end something."""
_ENDED_LINE = re.compile(rf"(?:[\w'\"-]+ ){{1,6}}(?:{'|'.join(sorted(_ENDED))})\b(?! by\b)", re.IGNORECASE)
_BAD_CODE = re.compile(
    r"invalid|error|not[_-]?found|denied|unauthori|forbidden|fail|time-?_?out|exceeded|missing|bad[_-]|unknown"
    r"|unsupported|conflict"
    r"|expired|required|exception|unavailable",
    re.IGNORECASE,
)
_BARE_REPORT = frozenset(
    ["message", "detail", "details", "code", "documentationurl", "statuscode", "requestid", "traceid", "path", "title"]
)
"""Fields of an object that is nothing but a service's report."""

Use = Literal["reads", "runs", ""]
Verdict = Literal["failed", "worked", "open"]
"""`open`: the result does not tell."""


def next_state_verdict(turn: Turn, next_state: NextState) -> Verdict:
    """The verdict of the results that came next: one failure is one of all, and they worked if one says so."""
    calls: Sequence[Mapping[str, Any]] = turn.answer.get("tool_calls") or ()
    results = next_state.results
    if not results:
        return tool_verdict(next_state.text, calls[0] if len(calls) == 1 else _written_call(turn))
    by_id = {call.get("id"): call for call in calls if call.get("id")}
    ends = [*(result.start for result in results[1:]), len(next_state.text)]
    verdicts: set[Verdict] = set()
    for place, (result, end) in enumerate(zip(results, ends, strict=True)):
        call = by_id.get(result.call_id) or (calls[place] if len(calls) == len(results) else None)
        if result.failed is not None:
            verdicts.add("failed" if result.failed else "worked")
        else:
            verdicts.add(tool_verdict(next_state.text[result.start : end], call))
    return "failed" if "failed" in verdicts else "worked" if "worked" in verdicts else "open"


def _searches(call: Mapping[str, Any] | None) -> bool:
    """True for a tool that looks for something."""
    words = [word.lower() for word in _WORDS.findall(str(call.get("name") or ""))] if call is not None else []
    return not _SEARCHES.isdisjoint(words)


def _written_call(turn: Turn) -> Mapping[str, Any] | None:
    """The command that an agent wrote as text, where it made no call."""
    blocks = _SHELL_BLOCK.findall(str(turn.answer.get("content") or "")[-_LONGEST:])
    return {"name": "shell", "arguments": {"command": blocks[0].strip()}} if len(blocks) == 1 else None


@reads_text()
def tool_verdict(text: str, call: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict of a result; `call` is the canonical call that it answers, `None` if unknown."""
    bare = text.strip()
    use, command = _use_of(call)
    if is_empty(bare):
        return "worked" if command and _is_silent(command) else "open"
    if use == "reads" and not command and _searches(call) and is_without_hit(bare):
        return "open"
    if tool_failed(text, call):
        return "open" if use == "reads" and not command and _may_be_read(bare, call) else "failed"
    if bare[0] in "{[" and bare[-1] in "}]":
        value = _decoded(bare)
        worked = isinstance(value, dict) and _by_fields(value, reads=False) is False
        if value is not None and (use == "reads" or not worked) and is_open(value, hits=use == "reads"):
            return "open"
    lines = [line.rstrip() for line in bare[: 2 * _LONGEST].splitlines() if line.strip()]
    if command and _answers_by_code(command) and _exit_code(lines) == 1:
        return "open"
    if _says_worked(bare, call) or (_stops(call) and _ENDED_LINE.match(bare)):
        return "worked"
    if bare[0] in "{[" and bare[-1] in "}]":
        return "worked"
    return "open" if says_nothing(bare) or (command and _NUMBER.fullmatch(bare)) else "worked"


def _is_silent(command: str) -> bool:
    """True for a shell command that prints nothing when it works."""
    parts = [part.strip() for part in _SEPARATORS.split(command) if part.strip()]
    return bool(parts) and all(_SILENT.match(part) or _REDIRECTED.search(part) for part in parts)


def _says_worked(text: str, call: Mapping[str, Any] | None) -> bool:
    """True if a field or an exit code says that the tool worked."""
    if _by_object(text, call, _DEPTH) is False and isinstance(value := _decoded(text), dict):
        return _by_fields(value, reads=False) is False
    lines = [line.rstrip() for line in text[: 2 * _LONGEST].splitlines() if line.strip()]
    use, command = _use_of(call)
    code = None if use == "reads" and not command else _exit_code(lines)
    return code == 0


def _stops(call: Mapping[str, Any] | None) -> bool:
    """True for a tool that ends something."""
    words = [word.lower() for word in _WORDS.findall(str(call.get("name") or ""))] if call is not None else []
    return not _ENDS_WORK.isdisjoint(words)


@reads_text()
def tool_failed(text: str, call: Mapping[str, Any] | None = None) -> bool:
    """True if a result reports a failure; `call` is the canonical call that it answers, `None` if unknown."""
    verdict = _by_object(text.strip(), call, _DEPTH)
    if verdict is not None:
        return verdict
    if len(text) > 2 * _LONGEST:
        text = f"{text[:_LONGEST]}\n{text[-_LONGEST:]}"
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return False
    use, command = _use_of(call)
    if not use and _QUOTED.match(lines[0]):
        use = "reads"
    code = None if use == "reads" and not command else _exit_code(lines)
    tests = use != "reads" and any(
        _TESTS.match(line) for line in lines[-_TAIL:] if _is_own(line) or _FAILING.match(line)
    )
    if code is not None:
        found_nothing = code == 1 and _answers_by_code(command)
        return tests or (code != 0 and not found_nothing)
    short = len(lines) <= _SHORT_LINES and len(text) <= _SHORT
    if (
        (short or use != "reads")
        and _reports_failure(lines[0])
        and not (use == "reads" and command and _is_of_text(lines[0], command))
    ):
        return True
    if short and _says_failure(lines[0], call, use):
        return True
    if use == "reads":
        return short and bool(command) and bool(_ENDING.match(lines[0])) and not _is_of_text(lines[0], command)
    ends = lines if len(lines) <= _HEAD + _TAIL else [*lines[:_HEAD], *lines[-_TAIL:]]
    if tests or any(_COMPILER.match(line) for line in ends):
        return True
    return any(_ENDING.match(line) and not _means_none(line) for line in _own_lines(ends))


def _by_object(text: str, call: Mapping[str, Any] | None, depth: int) -> bool | None:
    """The verdict of a result that is an object in print: `None` where it is no object."""
    if not text or text[0] not in "{[" or text[-1] not in "}]" or not depth:
        return None
    value = _decoded(text)
    if isinstance(value, list):  # the parts of one result
        parts = [part for part in value if isinstance(part, dict) and part.get("type") == "text"]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        return any(tool_failed(text, call) for text in texts)
    if not isinstance(value, dict):
        return None
    verdict = _by_fields(value, reads=_use_of(call)[0] == "reads", ends=_stops(call))
    if verdict is not None:
        return verdict
    if (reported := _by_report(value, call)) is not None:
        return reported
    for name, inner in value.items():
        if _bare(name) in _INNER and isinstance(inner, dict):
            verdict = _by_fields(inner, reads=False)
            if verdict is not None:
                return verdict
    content = value.get("content") or value.get("output") or value.get("result")
    if isinstance(content, list):
        return bool(_by_object(msgspec.json.encode(content).decode(), call, depth - 1))
    was_read = not value.keys().isdisjoint(_SOURCES)
    return isinstance(content, str) and not was_read and tool_failed(content, call)


def _by_report(fields: Mapping[str, Any], call: Mapping[str, Any] | None) -> bool | None:
    """The verdict of an object that is nothing but a service's report; `None` for any other."""
    named = {_bare(name): value for name, value in fields.items() if isinstance(name, str)}
    errors = named.get("errors")
    if isinstance(errors, list) and errors and named.get("data") is None:
        return True
    said = named.get("message") or named.get("detail")
    if not isinstance(said, str) or not named.keys() <= _BARE_REPORT:
        return None
    code = named.get("code")
    if isinstance(code, str) and _BAD_CODE.search(code):
        return True
    return True if _reports_failure(said) or _says_failure(said, call, "") else None


def _by_fields(fields: Mapping[str, Any], *, reads: bool, ends: bool = False) -> bool | None:
    """The verdict of the fields of one object; `None` if none of them says how the tool ended.

    In what a tool read, `status` and `state` are those of the thing that was read, unless they say "error".
    """
    named = {_bare(name): value for name, value in fields.items() if isinstance(name, str)}
    good = False
    for name, value in named.items():
        if name in _FAILED_IF_TRUE or name in _FAILED_IF_FALSE:
            if value in (True, False, "true", "false", "True", "False"):
                said = value in (True, "true", "True")
                if said == (name in _FAILED_IF_TRUE):
                    return True
                good = True
        elif name in _EXIT_CODES or (name == "code" and not named.keys().isdisjoint(("stdout", "stderr", "output"))):
            number = _number(value)
            if number is not None:
                return number != 0
        elif name in _STATUSES:
            number, word = _number(value), str(value).lower()
            if number is not None and 400 <= number <= 599:
                return True
            if ends and word in _ENDED:
                good = True
            elif word in _BAD_STATUS and (not reads or word.startswith("error")):
                return True
            good = good or (number is not None and 200 <= number < 400) or word in _GOOD_STATUS
    for name in named.keys() & _ERRORS:
        if not _is_nothing(named[name]):
            return True
        good = True
    return False if good else None


def _exit_code(lines: Sequence[str]) -> int | None:
    """The exit code in a harness's lines around the output: before it, else after it."""
    begins = next((place for place, line in enumerate(lines[: 2 * _HEAD]) if _OUTPUT_BEGINS.match(line)), 1)
    for line in (*lines[:begins], *reversed(lines[-_TAIL:])):
        found = _EXIT.search(line) if len(line) <= _EXPLAINED and not _QUOTED.match(line) else None
        if found is not None:
            return int(found[1])
    return None


def _reports_failure(line: str) -> bool:
    bare = _DECORATION.sub("", line)
    return bool(_REPORT.match(line) or _REPORT.match(bare)) and not _means_none(bare)


def _says_failure(line: str, call: Mapping[str, Any] | None, use: Use) -> bool:
    """True for a report in plain words. Of a tool that reads it has to name something that the call named: otherwise
    the words may be those of the text.
    """
    bare = line
    for text in _texts_of(call):
        bare = bare.replace(text, _NAME)
    named = _NAME in bare
    bare = _DECORATION.sub("", _NAMED.sub(_NAME, bare))
    if _stops(call) and _ENDED_LINE.match(line):
        return False
    if use == "runs" and _NO_PLACE.match(bare):
        return True
    if use == "reads" and not named:
        return False
    return bool(_PLAIN.match(bare) or _REPORT.match(bare)) and not _is_figure(line)


def _is_of_text(line: str, command: str) -> bool:
    """True if a line is one of the text that a command shows: one that fails says its own name, or its harness's."""
    names = [part.split()[0].rsplit("/", 1)[-1] for part in _SEPARATORS.split(command) if part.strip()]
    own = (
        *names,
        *(("fatal: ",) if "git" in names else ()),
        "bash",
        "sh",
        "zsh",
        "command",
        "tool",
        "execution",
        "exec",
        "failed to",
        "error executing",
        "error running",
    )
    return not _DECORATION.sub("", line).lower().startswith(tuple(name.lower() for name in own))


def _may_be_read(text: str, call: Mapping[str, Any] | None) -> bool:
    """True for words of a failure that a tool that reads may have found: they name nothing that the call named, and
    give none of the causes for which it reads nothing.
    """
    named = any(one in text for one in _texts_of(call))
    return _FOUND.match(text) is not None and not named and not _UNREAD.search(text)


def _texts_of(call: Mapping[str, Any] | None) -> list[str]:
    """The arguments of a call that are texts, longest first."""
    arguments = call.get("arguments") if call is not None else None
    values = arguments.values() if isinstance(arguments, dict) else ()
    texts = [value for value in values if isinstance(value, str) and 3 <= len(value) <= _LONGEST]
    return sorted(texts, key=len, reverse=True)


def _means_none(line: str) -> bool:
    """True for "Error: (none)" and the like, and for a figure."""
    found = _ERROR_LINE.match(line)
    return _is_figure(line) or (found is not None and _is_nothing(found["what"]))


def _is_figure(line: str) -> bool:
    """True for an error that was measured, and for a count of no failures."""
    return bool(_COUNTED_NONE.match(line) or _MEASURED.match(line))


def _own_lines(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if _is_own(line)]


def _is_own(line: str) -> bool:
    """True for a line that quotes nothing."""
    return _QUOTED.match(line) is None


def _use_of(call: Mapping[str, Any] | None) -> tuple[Use, str]:
    """The use of a tool, and the shell command where it runs one."""
    if call is None:
        return "", ""
    arguments = call.get("arguments")
    fields: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
    words = [word.lower() for word in _WORDS.findall(str(call.get("name") or ""))]
    command = next((text for name in _COMMAND_FIELDS if (text := _command_text(fields.get(name)))), "")
    reads = not _READS.isdisjoint(words)
    acts = not _ACTS.isdisjoint(words)
    if command in ("view", "read", "open"):  # an editor that takes its command as an argument
        return "reads", ""
    if command and (acts or not reads):
        parts = [part.strip() for part in _SEPARATORS.split(command) if part.strip()]
        return ("reads" if parts and all(map(_READERS.match, parts)) else "runs"), command
    return ("reads" if reads and not acts else "runs" if acts else ""), ""


def _command_text(value: Any) -> str:
    """A shell command, also of a list such as `["bash", "-lc", "ls"]`."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return str(value[-1]) if len(value) > 2 and value[-2].startswith("-") and "c" in value[-2] else " ".join(value)
    return value if isinstance(value, str) else ""


def _answers_by_code(command: str) -> bool:
    parts = [part.strip() for part in _SEPARATORS.split(command) if part.strip()]
    return bool(parts) and bool(_ANSWERS_BY_CODE.match(parts[-1]) or _ANSWERS_BY_CODE.match(parts[0]))


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    if len(text) > _LONGEST:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value.strip()) else None


def _is_nothing(value: Any) -> bool:
    return not value or (isinstance(value, str) and value.strip().lower() in _NOTHING)
