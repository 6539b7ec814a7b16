"""Messages of the user's role that a program wrote alone: what a call came to, and what the agent shall do next.

A program speaks in other ways than a person: about tool calls, the user in the third person, the steps that are left,
what to call when all is done; or it prints a state, a report, a note in brackets. One sign that only programs give is
enough; of signs that people give too, a message needs two. In a single line the wording is one sign, as people write
such lines as well ("Build failed", "[Translate to German]"): what only a machine writes, or a full sentence about the
agent and its conversation, is the second. Works on texts without the words of a person.
"""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import any_of, reads_text

_READ = 4000
"""Characters at the beginning of a message that tell who speaks."""


def _begins(*alternatives: str) -> re.Pattern[str]:
    return re.compile(r"[\s>*#_⚠️\U0001f300-\U0001faff-]{0,20}(?:" + "|".join(alternatives) + ")", re.IGNORECASE)


_NAMED = r"[`'\"“\[]?[\w./:-]{1,60}[`'\"”\]]?"

_REPORT = _begins(
    # what a call came to
    rf"(?:the )?(?:tool|function|action|command|script|cell)(?: call)? {_NAMED} (?:has )?(?:returned|exited"
    rf"|executed|failed"
    r"|succeeded|completed|finished|timed out|produced|was (?:executed|run))\b[^\n]{0,80}(?::[ \t]*(?:\n|\Z)"
    r"|code \d|\.?\s*\Z|\.\s*\n)",
    r"(?:the )?(?:tool|function|action) (?:returned|responded with|call (?:returned|failed))[^\n]{0,60}:",
    r"(?:the )?(?:results?|outputs?|response) (?:of|from) (?:calling|running|executing|invoking|(?:the )?(?:tool"
    r"|function"
    r"|step|command|action)|`?[a-z]+_\w+`?)\b[^\n]{0,80}",
    r"(?:command|code|script|tool|function|action) (?:was )?(?:executed|ran|completed|finished) (?:successfully"
    r"|with)\b",
    r"(?:std(?:out|err)|console|terminal|shell|program|script|execution|sandbox|(?:code )?interpreter|repl|cell"
    r"|notebook)"
    r"(?: (?:output|result|log)s?)?:",
    r"(?:the )?command `[^`\n]{1,400}` (?:exited|failed|timed out|returned|was)\b",
    r"(?:error|exception|failure) (?:while |when |in )?(?:executing|running|calling|invoking)\b[^\n]{0,80}:",
    r"(?:action|step|tool|function|call)(?: \d+| call| use)? (?:result|output|failed|succeeded|error|response)\b ?:",
    r"\[(?:tool|function|action|command|code|shell|terminal)[\w -]{0,30}(?:output|result|response|error"
    r"|call)?[^\]\n]{0,80}\]",
    r"(?:returned value|return value|exit code|exit status):|(?:output|result|response|return):[ \t]*\n(?!\s*\n)"
    r"|\[?tool (?:result|execution|call|use)s?\b[^\n]{0,80}\b(?:missing|timed out|failed|denied|had|with|found"
    r"|returned)\b",
    r"your (?:last |previous )?(?:tool|function) call\b|(?:error: )?tool_(?:use|call|result)\w*\b",
    r"the (?:sub-?agent|worker) (?:has )?(?:returned|found"
    r"|produced)\b[^\n]{0,80}",
    r"the (?:page|browser|tab|window|app|screen) (?:has|is|was) (?:now |finished |been )*(?:loaded|loading|at"
    r"|open|opened|closed|scrolled"
    r"|reloaded|navigated)\b",
    r"(?:clicked|typed|scrolled|navigated|pressed|selected|opened|submitted|hovered|screenshot) (?:on |to |into "
    r"|in |down |up )?(?:taken"
    r"|element|[`'\"\[]|https?:)[^\n]{0,200}\s*\Z",
    r"[1-9]\d* (?:tests?|checks?|specs?) failed:?[ \t]*\n",
    r"(?:lint|type|test|build|compile|runtime) errors?:[ \t]*\n",
    r"unknown (?:tool|function|action|command) [`'\"]\w",
    r"(?:(?:tool|test|action|browser|command|execution|search|query|compilation|compiler|build|lint(?:er)?"
    r"|runtime|step|api|call|code"
    r"|validation|evaluation|verification|review(?:er)?|judge|critic"
    r"|grader) ){1,2}(?:\d+ )?(?:actions? )?(?:results?|outputs?|errors?"
    r"|response|verdict|feedback|report|log|summary|score|observation)s?\b[^\n:]{0,60}(?::|\n(?!(?-i:[a-z])))",
    r"(?:results?|hits) for (?:query |search |the query )?[`'\"][^\n]{1,200}[`'\"][^\n]{0,40}:",
    r"output of (?:your|the) (?:code|command|script|program|last \w+)\b[^\n]{0,40}:",
    r"(?:the )?(?:code|command|script|snippet) (?:you (?:provided|wrote|sent|gave)|above) (?:was"
    r"|has been) (?:executed|run)\b",
    r"your (?:edit|change|patch|code|command|script|action|update|diff|query|submission)s? (?:was|were|has been"
    r"|have been"
    r"|could not be|did not|failed to) (?:not )?(?:successfully )?(?:appl(?:y|ied)|executed?|saved?|accepted"
    r"|rejected|run|submitted"
    r"|received|merged?|compiled?|parsed?)\b",
    r"(?:the )?(?:file|folder|edit|patch|change|document) [`'\"][^\n`'\"]{1,200}[`'\"] (?:was|has been"
    r"|could not be)\b",
    r"\[[a-z][a-z0-9_]{2,30}\] \d+ \w+|[a-z]\w*\(\{[^\n]{0,300}\}\) ?(?:->|=>|returned|:)",
    r"diagnostics (?:after|for|in|from)\b[^\n]{0,80}:",
    r"<[a-z]+[-_](?:results?|outputs?|response|observation)>|<(?:observation|results?|output|response|stdout"
    r"|stderr|status|event|error|return_?value)>",
    # a state in print
    r"(?:here is |this is )?(?:a |the )?(?:new |current |latest |updated )?(?:screenshot|accessibility (?:tree"
    r"|snapshot)|page"
    r" (?:state|snapshot)|browser state|screen state)\b(?: (?:after|of|taken|following|is|shows|below|above)\b|:"
    r"|\s*\Z)",
    r"\[?(?:current|browser|page|environment|screen|game|agent) (?:state|snapshot|status"
    r"|observation)\]?\s*:?[ \t]*\n",
    r"current url:|(?:open tabs|interactive elements|available elements|viewport)\b[^\n]{0,40}:",
    # a check that did not pass, with its output
    r"(?:build|compilation|tests?|test run|lint(?:er|ing)?|type[- ]?check(?:s|ing)?|ci|pipeline|pre-commit|checks?"
    r"|verification|validation) (?:failed|did not pass|reported|found)\b[^\n]{0,80}:[ \t]*\n",
    r"(?:the )?following (?:[\w-]+ ){0,4}(?:errors?|problems?|warnings?|diagnostics|issues|failures"
    r"|violations) (?:were|was|have"
    r"|has|remain|are)\b[^\n]{0,80}\b(?:introduced|found|detected|reported|by your|remain|fix)",
    # an answer whose form is wrong
    r"invalid (?:format|action|tool call|function call|response|output)\b ?[:.]",
    r"i did it wrong\. tried to\b|i (?:made|encountered) an error(?: while)? (?:parsing|calling|using)\b",
    r"(?:the )?(?:code block|code snippet|action|thought|tool call|json|final answer) (?:is|was) (?:missing"
    r"|not found|empty"
    r"|malformed|incomplete)\b",
    r"(?:could not|couldn['’]t|cannot|unable to|failed to) (?:parse|decode|extract|validate|find (?:a|an"
    r"|any) (?:valid )?"
    r"(?:tool|action|code|json|function))\b[^\n]{0,120}",
    r"(?:parsing|parser|format|schema|json|output|response|validation) error\b[^\n]{0,40}[:.]",
)
_WRONG_FORM = any_of(
    r"\b(?:your|the|last|previous) (?:[\w-]+ ){0,2}(?:response|output|reply|answer|message|json)\b[^\n.]{0,60}"
    r"(?:could not be parsed|(?:is|was) not (?:valid|parsable)|failed (?:[\w-]+ ){0,2}validation|did not (?:match"
    r"|follow|conform"
    r"|contain|include)|does not (?:match|follow|conform|contain|include)|violates|was (?:rejected|empty"
    r"|truncated|cut off))"
)
_FORM_ORDERED = any_of(
    r"\b(?:return|respond with|reply with|output|provide|send|write)\b[^\n]{0,40}\b(?:only|valid|corrected"
    r"|complete|fixed)\b"
    r"[^\n]{0,40}\b(?:json|object|format|schema|tool call|function call|answer)",
    r"\bexpecting (?:value|property|',')|\bfield required\b|\brequired property\b|\bis a required\b"
    r"|^[ \t]*[-*] [\w.\[\]]+: ",
    r"\b(?:try again|retry)\b[^\n]{0,60}\b(?:format|json|schema|tool|function)",
)

_TERMINAL = re.compile(r"\A(?:\$ |❯ |> (?:running|executing|ran) )", re.IGNORECASE)
_BROKEN = re.compile(
    r"\A(?:traceback \(most recent call last\)|[\w.]*(?:error|exception)\b)[\s\S]{0,4000}\n\s*(?:please )?(?:fix"
    r"|correct|revise|repair|resolve)"
    r"\b[^\n]{0,60}\b(?:and (?:run|try|execute|resubmit|submit|retry)|so that|again)\b[^\n]{0,60}\Z",
    re.IGNORECASE,
)
"""The output of a program, and an order to do better."""
_RULED = re.compile(
    r"\A(?:\*{2,4}|-{2,4}|={2,4}|_{2,4}|~{2,4}) ?[A-Z][^\n*=_~]{4,120}? ?(?:\*{2,4}|-{2,4}|={2,4}"
    r"|_{2,4}|~{2,4})\Z|\A<[a-z][\w:-]{2,60} ?/>\Z"
)
_CAPITALS = re.compile(
    r"\A\W{0,4}(?:NOTICE|WARNING|ALERT|HEARTBEAT|REMINDER|EVENT|SYSTEM|CRON|TIMER|AUTO)\b[^\n:]{0,30}:"
)
"""A word in capitals before a notice."""
_BRACKETED = re.compile(r"\A[\[【](?=[A-Z\u4e00-\u9fff])(?![\d\s,.\"'{\[xX-]{1,4}[\],])[^\[\]]{8,1500}[\]】]\.?\Z")
"""A message that is one note in brackets."""
_SYSTEM = _begins(
    r"[\[(【<]{1,2} ?(?:system\b|automat\w+|auto\b|notice|notification|reminder|info\b|internal|scheduled|cron"
    r"|background|hook"
    r"|observer|event\b|meta\b|alert|系统|自动|提示)",
    r"(?:system|automated|automatic)[ -](?:notification|notice|message|reminder|note|hint|alert|warning|event"
    r"|prompt|check|trigger"
    r"|update|instruction|run)\b[^\n]{0,60}[:.]",
    # a label: people speak of such messages, too
    r"(?:system(?:hinweis|nachricht|meldung|benachrichtigung)|(?:message|avis|notification) (?:du )?système"
    r"|(?:aviso|mensaje|notificación|mensagem|recordatorio|rappel|lembrete|promemoria) (?:del|du|do|di)"
    r" s[yi]st[eè]?m[ae]"
    r"|системное (?:сообщение|уведомление)|システム(?:メッセージ|通知)|시스템 ?(?:메시지|알림)"
    r"|(?:自动|系统)(?:提醒|提示|消息|通知))[^\n?？,，]{0,20}[:：\])】]",
    r"(?:note|message|reminder|notice) from the system\b",
    r"[\[(](?:recordatorio|aviso|rappel|lembrete|promemoria) (?:del|du|do|di) s[yi]st[eè]?m[ae]\b",
    r"this is an automat(?:ed|ic) (?:message|reminder|check|prompt|notification|trigger)\b",
    r"(?:this is )?(?:a |an |the )?(?:scheduled|recurring|periodic|cron) (?:run|task|job|execution|trigger|check"
    r"|message|prompt)\b",
)
_BARE_SYSTEM = re.compile(r"\A\W{0,4}system ?[:：]\s", re.IGNORECASE)
_ASKS = re.compile(r"\?|\b(?:i|i['’]m|i['’]ve|my|me|we|our|please help)\b", re.IGNORECASE)
"""A person's own voice."""

_FIRST = re.compile(r"\b(?:i|i['’]m|my|me|we|our)\b", re.IGNORECASE)
_PERSONS = re.compile(
    r"\?|\b(?:i|i['’]m|my|me|thanks|thank you|our|danke|merci|gracias|because you|you (?:forgot|said|broke))\b",
    re.IGNORECASE,
)
"""The voice of a person in a single line."""

_MACHINE = re.compile(
    r"(?i:`|\w_\w|</?[a-z][\w-]{0,40}/?>|\{[\"']|->|https?://|[a-z]-\d|\d ?/ ?\d|\b\d+ of \d+ steps"
    r"|\d{4}-\d\d|\d\d:\d\d|\w\w\(\S|\b\d+ ?(?:%|s\b|ms\b)|\w\.[a-z]{1,4}\b|\A[\[(<]{1,2}system\b"
    r"|\Asystem (?:message|notice)\b|\A[Ss]ystem[a-z]{4,16}:|\A\[[a-z_]{1,40}\] \d)"
    r"|[\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
)
"""Signs of a machine in a line: names of code, files, marks, ids, times, counts; a script that `_AGENTS` has not."""
_AGENTS = any_of(
    r"\b(?:tools?|actions?|agents?|sub-?agents?|orchestrator|(?:final|previous|last|next) (?:answer|action|response"
    r"|message|reply|output)|your (?:todo|task|turn|response|reply|output|plan|context)|todos?|iterations?"
    r"|steps? (?:left|remaining)|remaining (?:tasks|steps)|persona|mode|conversation|session|chat|context|prompts?"
    r"|the user|user (?:action|left|joined|is|has)|automat(?:ed|ic)|scheduled|system|sistema|notification|hook"
    r"|screenshot|the task|the next step|elapsed|the result above|response requested|message|reply|image"
    r"|token|cron|timed? ?out|search results|verdict|arguments|werkzeug)\b"
)
"""Words for an agent and what it works with."""
_SENTENCE = re.compile(r"\A\W*[^\W\d_a-z][\s\S]*[.!…)\]”\"']\Z")
"""Written out: from a capital to a full stop."""

_CERTAIN = any_of(
    # what to do when all is done
    r"\bif (?:you (?:think|believe|feel|consider)[^\n.,]{0,20} )?(?:you(?:['’]re| are| have)|the task|everything"
    r"|all (?:tasks|work|todos)|there (?:is|are) nothing)\b[^\n.]{0,60}\b(?:done"
    r"|finish\w*|complet\w+|left|nothing|remember|report|store|save)\b[^\n.]{0,30}?,? (?:then )?(?:call|use|run"
    r"|reply|respond|say"
    r"|output|return|submit|invoke|issue|type|end)\b[^\n.]{0,40}(?:[`<]|\w_\w|(?-i:\b[A-Z]{4,}\b)|\btools?\b"
    r"|\bfunction\b|\bcommand\b)",
    r"\b(?:call|use|run|invoke)\b[^\n.]{0,40}\b(?:if|when|once) (?:the task|you(?:['’]re| are)) (?:is )?(?:done"
    r"|finished|complete)",
    r"\b(?:reply|respond|answer|end)(?: only| exactly| just)?(?: with)? [`'\"]?(?-i:[A-Z]{2,}_[A-Z_]{2,}"
    r"|TERMINATE|NOOP|SKIP|DONE|FINISHED"
    r"|HEARTBEAT\w*)\b",
    r"\b(?:output|reply with|respond with|emit|print|return|write) [`'\"]?"
    r"<(?!(?:br|hr|img|input|link|meta|wbr|svg|path)/?>)(?-i:[a-z]{2,30}/|[a-z]+[-_][a-z_-]{1,30})>",
    r"\b(?:do not|don['’]t|never) ask the user\b|\bavailable (?:actions|tools|commands|functions)(?: are)?:"
    r"|\byour next action\b",
    r"^\W{0,4}(?:warning|notice|note|budget|time|token|usage|status|alert"
    r"|info)\b[^\n:]{0,20}:[^\n]{0,80}\b(?:left|remaining|elapsed)\b",
    r"\b(?:every|each) (?:message|response|turn|reply) must (?:contain|include|have|end|use"
    r"|call)\b[^\n.]{0,40}\b(?:action|tool|function|command|json|tag|code block)"
    r"|\bdid not include a valid\b",
    # what is left
    r"\byou have (?:only )?(?:used )?\d+ (?:of \d+ )?(?:more |remaining )?(?:steps?|turns?|iterations?"
    r"|tool calls?|actions?"
    r"|api calls|tokens?)\b",
    r"\b(?:max(?:imum)?(?: number of)?|limit of) (?:iterations?|steps?|turns?|tool calls?|attempts"
    r"|rounds)\b[^\n.]{0,40}"
    r"\b(?:reached|exceeded|used)",
    # how it speaks of the two who talk
    r"\b(?:do not|don['’]t|never|without) (?:mention|reveal|tell|acknowledge|disclose"
    r"|refer to)\w*\b[^\n.]{0,60}\b(?:to|with) the user",
    r"\bnever ask for human\b|\b(?:do not|don['’]t) (?:wait|ask) for (?:the )?(?:user|human) (?:input"
    r"|confirmation|help|response)",
    r"\b(?:did not|didn['’]t|without) (?:provide|give|produc\w*|send\w*)[^\n.]{0,40}\b(?:response|answer|reply"
    r"|output) to the user",
    r"\bthe user is not responding\b|\buser is not responding to your\b|\bthe user (?:has been|is"
    r"|went) (?:inactive|idle|away|offline)",
    # how it speaks of calls
    r"\bno (?:valid )?(?:tool|function) calls? (?:was|were|is) (?:detected|found|made|made in|present)",
    r"\bthe same (?:tool|action|command|call)s?\b[^\n.]{0,60}\b(?:same (?:arguments|parameters|input)"
    r")",
    r"\bdo not (?:stop|end|finish)\b[^\n.]{0,60}\b(?:until|before|while)\b[^\n.]{0,60}\b(?:todos?|tasks?|items?"
    r"|steps?)\b",
    r"\byour (?:todo|task) list (?:is (?:currently )?empty|(?:still )?(?:has|contains) \d)"
    r"|\bpending (?:todo )?items?:\s*\n",
)
_AT_START = _begins(
    r"(?:step|iteration|turn|round|attempt|cycle) \d+ ?(?:/|of) ?\d+\s*[.:)\]\n—-]",
    r"(?:[\w-]+ )?hook(?: [`'\"][\w:.-]{1,60}[`'\"])? (?:feedback|blocked|failed|returned|rejected|output|error"
    r"|message)\b",
    r"(?:background|async\w*|long-running|scheduled|sub-?)[ -]?(?:task|job|process|agent|command|shell|run"
    r"|workflow)s?\b[^\n]{0,80}"
    r"\b(?:completed|finished|exited|failed|stopped|terminated|done|timed out|returned)\b",
    r"no response requested\b|(?:memory|plan|context|todo list|notes|profile) (?:was |has been )?(?:updated|saved"
    r"|cleared|reset|loaded)\.?\s*\Z"
    r"|the (?:plan|memory|todo list|context) (?:was|has been) \w+\.?\s*\Z",
    r"(?:current step|progress|step|context|budget|usage)\b ?: ?\d+ ?(?:/|of|%)"
    r"|agent [\w-]{1,30}, it is your turn\b",
    r"it has been \d+ \w+ since\b|(?:the )?user (?:has not|hasn['’]t|did not) (?:replied|responded|answered|sent"
    r"|written)\b|user (?:is typing|left"
    r"|joined)\b|a new (?:day|session|conversation) has (?:begun|started)\b",
    r"\[?notification\]?\W|(?:permission|access|approval) (?:was )?(?:granted|denied|given|revoked) (?:for|to|by)\b",
    r"(?:timer|alarm|webhook|trigger|event|cron job|alert|callback)\b(?: [`'\"][^\n`'\"]{1,60}[`'\"])? (?:fired"
    r"|received|triggered|expired"
    r"|elapsed|raised|activated)\b",
    r"(?:new|incoming|received) (?:e-?mail|message|event|notification|webhook|ticket"
    r"|alert)s?\b[^\n]{0,60}:[ \t]*\n(?:from|subject|to|date"
    r"|id|type):",
    r"(?:the )?(?:conversation|session|chat|run|process) (?:was|has been) (?:paused|resumed|restarted|reset"
    r"|restored|interrupted|suspended"
    r"|summari[sz]ed|compacted)\b",
    r"message from (?:the )?(?:agent|orchestrator|supervisor|coordinator|worker|planner|critic|main agent"
    r"|sub-?agent)\b|\[[\w .-]{1,40} ?(?:->|→|=>)"
    r" ?[\w .-]{1,40}\]|(?:worker|agent|node) \w{1,20} (?:reported|reports|finished|returned|says)\b",
    r"you have been (?:assigned|given|delegated|handed) (?:a |an |the )?(?:new |following )?(?:sub-?)?(?:task|job"
    r"|role)\b|handing (?:over )?control"
    r" to you\b",
    r"(?:user action|user event|ui event|git status changed|current (?:todo|task) list|token usage"
    r"|summary of (?:earlier|previous|prior) steps)"
    r"\b[^\n]{0,30}(?::|\n)",
    r"you have(?: not|n['’]t) (?:updated|used|called|checked|written|saved)\b[^\n]{0,80}\b(?:use|call|update"
    r"|run) (?:the )?`?\w+_\w+",
    r"(?:task|job|agent|process|workflow|worker) (?:[`'\"][^\n`'\"]{1,80}[`'\"]|[\w-]*[_#-]\w+|\d+) (?:has "
    r"|was )?(?:completed|finished"
    r"|exited|failed|been (?:completed|cancelled))\b",
    r"(?:the )?user (?:has |just )?(?:approved|accepted|rejected|denied|declined|cancelled|canceled|interrupted"
    r"|aborted|dismissed"
    r"|skipped|confirmed)\b[^\n:]{0,40}\b(?:plan|tool|request|action|command|call|operation|edit|change|changes"
    r"|response|turn)\b",
    r"(?:the )?user (?:has |just )?(?:joined|left|opened|switched|connected|returned|started|entered|uploaded"
    r"|clicked|selected|pasted"
    r"|navigated|scrolled|changed|enabled|disabled|denied|granted|deleted|closed)\b[^\n]{0,80}(?:\b(?:chat"
    r"|conversation|session|channel"
    r"|room|call|permission)\b|[`'\"/(])",
    r"(?:the )?user did(?: not|n['’]t) (?:respond|reply|answer|provide)\b",
    r"(?:tool|function|command|action)(?: (?:use|call|execution))? (?:was |has been )?(?:cancelled|canceled"
    r"|rejected|denied|interrupted"
    r"|aborted|declined|blocked|skipped)\b[^\n]{0,40}\b(?:by|due to)\b",
    r"(?:you are now|you['’]re now|switch(?:ed|ing) (?:in)?to|entering|exit(?:ed"
    r"|ing)) (?:in )?(?:the )?[`'\"]?(?:plan|act|build|agent"
    r"|ask|edit|code|debug|architect|read-only|review|auto|normal)[`'\"]? mode\b",
    r"(?:plan|act|build|agent|edit|read-only|auto) mode (?:is|was|has been) (?:now )?(?:on|off|active|enabled"
    r"|disabled|ended)",
    r"transferred to \w[\w -]{0,60}(?:agent|assistant|\.)|(?:handoff|handing off) (?:to|from) \w",
    r"(?:read|review|based on) the (?:above )?(?:conversation|discussion|messages)(?: above| so far)?\.? (?:and"
    r"|then|now) (?:select|give"
    r"|choose|decide|pick|take|speak)\b",
    r"you are now (?:speaking|acting|responding|talking) as\b[^\n]{0,100}\b(?:turn|conversation above)",
    r"(?:workspace|environment|repository|project|codebase|session) (?:information|info|details|context"
    r"|instructions|state|snapshot"
    r"|structure)\b[^\n?]{0,40}(?::[ \t]*\n|\n(?!(?-i:[a-z])))",
    r"(?:files|directory structure|file tree|folder structure) (?:in|of) the (?:workspace|project|repository|repo"
    r"|current directory)\b"
    r"[^\n?]{0,60}:?[ \t]*\n",
    r"the following files (?:were|have been) (?:changed|modified|edited|updated|created|deleted)\b[^\n]{0,100}:",
    r"here is the (?:current |updated )?(?:plan|todo list|task list|state)(?: so far)?\b[^\n]{0,40}:[ \t]*\n",
    r"(?:this is a |friendly |gentle )*reminder\b[^\n]{0,30}(?:\byour (?:todo|task|plan|output|response)|\btool"
    r"|\bto use|\bformat)",
)
_ORDERED = any_of(
    r"\brespond now\b|\bcontinue with\b|`\w+`"
    r"|\btool calls?\b"
    r"|\bexecuted\b|\bto the user\b|\bin your (?:last|previous) (?:response|message|turn)\b|\bcomplete the task\b"
)
_NOT_CALLED = any_of(
    r"\byou (?:did not|didn['’]t|have not|haven['’]t|executed|ended (?:your"
    r"|the) turn)\b[^\n.]{0,60}\b(?:tool|function|action"
    r"|command|code block)s?(?: calls?)?\b"
)
_REFLECT = _begins(
    r"(?:review|reflect on|critique|critically (?:review|assess)|re-?examine|evaluate|verify|assess"
    r"|double-check) (?:your|the)"
    r" (?:previous|last|above|own|result|output|answer|draft|solution|plan|work)\b"
)
_IN_FORM = any_of(
    r"\b(?:respond|answer|reply|output|return) (?:only |strictly )?(?:in|with|using) (?:this|the following|yes"
    r"|json|`|a json|one of)\b"
    r"|\bin (?:this|the following) format\b|\bthen (?:give|write|provide|output|produce) an? (?:improved|revised"
    r"|better|corrected)"
    r"|^\w+(?: \w+)?: ?(?:\.\.\.|<|\[)"
)
_EXECUTE = any_of(
    r"\A\W*(?:continue|keep|resume|proceed) (?:working |going |with |the |on |to )*(?:until|the (?:remaining"
    r"|pending|next) (?:tasks?"
    r"|todos?|items?|steps?))\b[^\n]{0,80}(?:\.|$)(?s:.)*?\b(?:tasks?|todos?|items?|steps?"
    r"|goal)\b[^\n.]{0,40}\b(?:complete\w*|done"
    r"|finish\w*)",
    r"\byou must (?:call|use|provide|produce|output|respond with|give) (?:exactly |only |a |your |the )*"
    r"(?:one |final |single )*(?:tool|function|answer|action|json)\b|\bin the required format\b",
    r"\bremember to use the tools\b",
    r"\bexecute step \d+\b|\bprovide your final answer now\b|\bchoose the next action\b|\bwhat is the next action\?",
)


@reads_text()
def is_report(text: str) -> bool:
    """True if a program tells what a call, a check or the form of an answer came to."""
    head = text[:_READ]
    if _is_line(head) and (_PERSONS.search(head) or not _by_machine(head)):
        return False
    last = text.strip().rsplit("\n", 1)[-1]
    if _FIRST.search(last) or last.endswith("?"):
        return False
    if _REPORT.match(head) and not _ASKS.search(head.rsplit("\n\n", 1)[-1] if "\n\n" in head else ""):
        return True
    if _BROKEN.match(head) or (_TERMINAL.match(head) and not _ASKS.search(head)):
        return True
    return bool(_WRONG_FORM.search(head) and _FORM_ORDERED.search(head))


@reads_text()
def is_order(text: str) -> bool:
    """True if a program tells the agent where things stand and what to do next."""
    head = text[:_READ]
    if _is_line(head) and not _by_machine(head):
        return False
    if _BRACKETED.match(text) or _SYSTEM.match(head) or (_CERTAIN.search(head) and not _is_shown(head)):
        return True
    if _AT_START.match(head) and not _ASKS.search(head.split("\n", 1)[0]):
        return True
    if _RULED.match(text) or (_CAPITALS.match(head) and not _ASKS.search(head)):
        return True
    if _BARE_SYSTEM.match(head) and not _ASKS.search(head):
        return True
    if _NOT_CALLED.search(head) and _ORDERED.search(head) and not _ASKS.search(head):
        return True
    return bool(
        (_REFLECT.match(head) and _IN_FORM.search(head))
        or (head[:1].isupper() and not _FIRST.search(head) and _EXECUTE.search(head))
    )


def _is_shown(head: str) -> bool:
    """True if a person asks about a program's text: in their own voice, before or behind it."""
    parts = [part for part in re.split(r"\n\s*\n", head.strip()) if part]
    return len(parts) > 1 and any(
        _PERSONS.search(part) and part.rstrip()[-1:] in "?:" for part in (parts[0], parts[-1])
    )


def _is_line(head: str) -> bool:
    return "\n" not in head.strip()


def _by_machine(line: str) -> bool:
    """True if a line has a second sign of a program, next to its wording."""
    line = line.strip()
    if _MACHINE.search(line):
        return True
    named = {found.lower() for found in _AGENTS.findall(line)}
    return len(named) > 1 or (bool(named) and _SENTENCE.match(line) is not None)
