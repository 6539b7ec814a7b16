"""A person's words in the template of a program: below a label, behind a sender's name, between notes.

A template has labels that stand at the beginning of a line: of the words ("User message:", "## My request"), of what
the program adds ("Chat history:", "[Attached files]"), of the answer that is to follow ("Helpful answer:"). A label
that names the user in the third person is a program's. "Question:" and "Task:" are people's words too: these count
where a program's sentence or label stands before them, or the label of an answer ends the text. Works on texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.text_reading import reads_text

_LONGEST_LABEL = 160
_LONGEST_JSON = 20_000
_SCANNED = 16_000
"""Characters at both ends of a text in which labels are looked for."""

_OWNER = (
    r"(?:end[- ]?user|user|human|customer|client|player|visitor|caller|sender|guest|member|patient|student"
    r"|learner|person)"
)
_NOUN = (
    r"(?:messages?|requests?|questions?|quer(?:y|ies)|prompts?|inputs?|tasks?|repl(?:y|ies)|responses?|answers?"
    r"|feedback"
    r"|comments?|utterances?|commands?|goals?|text|says|said|asks|asked|wrote|turn|instruction|actions?|speech"
    r"|selected"
    r"|selection)"
)
_WHICH = r"(?:(?:the|this|new|newest|latest|current|last|final|original|incoming|actual|next|most recent|now) )*"
_END = r"(?: (?:is|was|below|follows|here|received))*(?: \([^()\n]{0,40}\))?"

Kind = Literal["words", "maybe", "program", "around", "answer"]
"""Of a label: of a person's words for sure, perhaps; of a program's text for sure, perhaps; of the answer."""


def _names(*alternatives: str) -> re.Pattern[str]:
    return re.compile(r"(?:" + "|".join(alternatives) + rf"){_END}", re.IGNORECASE)


_LABELS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "words",
        _names(
            rf"{_WHICH}{_OWNER}(?:['’]?s)? follow[- ]?up",
            rf"{_WHICH}{_OWNER}(?:['’]?s)? (?:[\w-]+ )?{_NOUN}(?: (?:for|to|from|in|on|about) [^\n:]{{1,40}})?",
            rf"{_WHICH}(?:message|request|question|query|reply|feedback|input|prompt|instruction|comment"
            rf"|action) (?:from|of|by) (?:the )?{_OWNER}",
            r"my request\b[^\n:]{0,40}",
            r"用户(?:的)?(?:当前|最新)?(?:问题|消息|输入|请求|提问|需求|反馈|说)",
            r"(?:be)?nutzer(?:frage|anfrage|nachricht|eingabe)|(?:frage|anfrage|nachricht"
            r"|eingabe) des (?:be)?nutzers",
            r"(?:pregunta|mensaje|solicitud|consulta) del usuario|(?:question|message|demande"
            r"|requête) de l['’]utilisateur",
            r"(?:pergunta|mensagem|solicitação) do usuário|(?:domanda|messaggio|richiesta) dell['’]utente",
            r"(?:вопрос|сообщение|запрос) пользователя|ユーザー(?:の)?(?:質問|メッセージ|入力|発言)"
            r"|사용자(?:의)? ?(?:질문|메시지|입력)",
        ),
    ),
    (
        "maybe",
        _names(
            rf"{_WHICH}(?:follow[- ]?up )?(?:question|query|task|request|message|input|instruction|prompt|goal"
            rf"|objective|utterance"
            r"|comment)(?: (?:by|from) [\w@. -]{1,40})?",
            rf"{_WHICH}{_OWNER}",
            r"transcri(?:pt|ption)|(?:new|latest|current) message|asr|(?:voice|speech) (?:input|transcript)",
            r"问题|提问|用户|frage|aufgabe|(?:be)?nutzer(?:in)?|pregunta|usuario|utilisateur|usuário|utente|pergunta"
            r"|domanda|вопрос|пользователь"
            r"|質問|ユーザー|질문|사용자",
        ),
    ),
    (
        "answer",
        _names(
            r"(?:(?:helpful|final|your|detailed|short|concise|complete) )*(?:answer|response|reply|output"
            r"|assistant|agent|ai|bot|agent"
            r"|thought|thoughts|reasoning|result|json|json response|model)(?: in [\w ]{1,20})?",
            r"回答|答案|antwort|respuesta|réponse|resposta|risposta|ответ|回答|답변",
        ),
    ),
    (
        "program",
        _names(
            r"(?:[\w'’-]+ )?(?:(?:chat|conversation|message|dialogue|previous|prior|earlier|recent) )+"
            r"(?:history|conversation|messages|context|turns|so far|log)|conversation",
            r"(?:(?:web|relevant|internet|knowledge base|rag|top) )*(?:search )?results|(?:relevant|retrieved"
            r"|provided"
            r"|attached|referenced|uploaded|mentioned|selected|additional|available|long-term|user|known"
            r"|background) [\w /-]{1,30}",
            r"(?:(?:the )?(?:user|customer|client|player)['’]?s? )(?:name|profile|location|memories|memory"
            r"|preferences|info\w*"
            r"|data|id|plan|timezone|language|locale|device|level)",
            r"environment|workspace|(?:[\w-]+ )?(?:memories|attachments?)|attached (?:context|files?"
            r"|documents?)[^\n]{0,80}|files? attached",
            r"(?:editor|ide|workspace|environment|repository|repo|document|page|browser|app|system|session|note"
            r"|vault|project) "
            r"(?:context|state|info\w*|details|instructions|rules|status)",
            r"(?:page|document|sheet|site|url|file|ticket|order|repository|repo|issue|pull request|shell|os"
            r"|operating system|device|platform"
            r"|lesson|screen|app|branch|last command|recent commands|knowledge base|table|cell|model|channel"
            r"|chat id)(?: [\w-]+)?"
            r"(?: \([^()]{0,40}\)| of [^\n:]{1,60})?|(?:file )?contents? of [^\n:]{1,60}|当前时间|背景信息",
            r"(?:open tabs|ide context|editor context|working directory|cwd|branch)",
            r"(?:active|current|open|selected|visible) (?:files?|tabs?|documents?|editor|note|page|selection|text"
            r"|code|directory"
            r"|url|branch)(?: [^\n:]{1,40})?|cursor(?: (?:position|index|line))?|selection|selected (?:text|code"
            r"|lines)",
            r"(?:current|today['’]?s|local|system|server) (?:date|time|datetime|day"
            r"|timestamp)(?:[ /&]+(?:and )?time)?"
            r"|timestamp|time ?zone",
            r"(?:available |your )?tools(?: available)?|(?:output|response|answer|reply) (?:format|schema"
            r"|requirements|rules)"
            r"|format instructions",
            r"已知信息|上下文|参考(?:资料|内容|文档)|历史(?:对话|消息)|检索(?:结果|内容)|聊天记录|搜索结果",
            r"gesprächsverlauf|bisherige[rs]? (?:gespräch|chat)\w*|suchergebnisse|historial|historique",
        ),
    ),
    (
        "around",
        _names(
            r"(?:[\w'’-]+ ){0,2}(?:context|background|instructions?|rules?|guidelines?|constraints?|examples?"
            r"|documents?"
            r"|excerpts?|passages?|sources?|knowledge|memory|state|persona|scenario|schema|notes?|plan|platform"
            r"|channel)",
            r"kontext|contexto|contexte|contesto|контекст|文脈|指示|hintergrund|anweisung(?:en)?|quellen?",
        ),
    ),
)

_LEADS = re.compile(
    r"\W{0,8}(?:"
    r"(?:please )?use (?:only )?the (?:following|provided|given|above|retrieved) (?:pieces? of |\w+ )?(?:context"
    r"|information"
    r"|documents?|sources?|excerpts?|passages?|(?:search )?results|knowledge)"
    r"|(?:please )?(?:answer|respond to) (?:the|this|a|my|user['’]?s?) (?:[\w'’-]+ ){0,2}(?:question|query"
    r"|request|message)s?"
    r"\b[^\n]{0,30}\b(?:based|using|from|with the|given|at the end|below)"
    r"|context information is\b|given the (?:context|following context|above context|context information)\b"
    r"|(?:based|relying) (?:only |solely )?on the (?:following|context|provided|given) (?:\w+ )?(?:context|documents?"
    r"|information|sources?|excerpts?|passages?|and)?"
    r"|(?:below|here|the following) (?:is|are) (?:the |some |a few |an? )?(?:relevant|retrieved|search|web"
    r"|context|memor"
    r"|document|instruction|result|content of|conversation|chat|key facts|information about the user)"
    r"|below is the content of|the user has (?:uploaded|attached|shared|provided) "
    r"|i will give you |you (?:are|['’]re) (?:helping|assisting|talking to|chatting with) |you will be (?:given"
    r"|provided)|the user is (?:editing"
    r"|viewing|looking|reading|on|in|working)\b|what you know about the user|(?:file )?contents? of \S"
    r"|based on the [^\n]{0,40} (?:above|below)"
    r"|summary of (?:the|our|previous)|previous (?:answer|response|conversation|messages)\b"
    r"|the (?:current )?(?:time|date) is\b"
    r"|you have access to|begin!|now here is the|you are (?:an?|the) [^\n]{0,80}(?:assistant|agent|bot|model"
    r"|chatbot)\b"
    r"|请?(?:根据|基于|使用)(?:以下|下面|下列|上述|提供的)"
    r"|(?:bitte )?beantworte die frage\b|du bist ein\w* \w+assistent"
    r"|(?:responde|répondez?|responda|rispondi) (?:a |à )?(?:la |l['’])?(?:pregunta|question|pergunta|domanda)\b"
    r"|以下の(?:文脈|情報|コンテキスト)|다음 (?:문맥|정보)"
    r")",
    re.IGNORECASE,
)
"""The beginning of a program's sentence before the words."""
_INSTRUCTION = re.compile(
    r"\W{0,4}(?:please )?(?:respond\b|reply\b|answer (?:from|using|in|with|only|based|as)\b|return\b|output\b"
    r"|revise\b|cite\b"
    r"|format\b|think step|use (?:the|only|markdown)\b|you (?:must|should|may|can)\b|do not\b|don['’]t\b"
    r"|remember\b|note:"
    r"|important\b|the output should\b|this is the expected\b|make sure\b|follow\b|begin\b|now (?:write|answer"
    r"|respond)\b"
    r"|if you (?:don['’]t|do not|cannot)\b|provide\b|generate\b|continue\b|proceed\b|address (?:it|the)\b"
    r"|execute\b|write (?:the|a|your)\b|give\b)",
    re.IGNORECASE,
)
"""The beginning of a paragraph that tells the model what to do with the words."""

_SPOKEN = re.compile(
    r"\A[^\n]{0,160}?\b(?:the )?(?:user|human(?: reviewer| operator)?|student)(?:['’]s)? (?:has |have |just |also )*"
    r"(?:interrupted and said|edited the \w+ and added|said|says|asked|asks|wrote|writes|typed|replied|replies"
    r"|answered|responded|sent|provided|rejected"
    r"|declined|denied"
    r"|commented|added|submitted|left|gave|requested|message is|request is|question is"
    r"|doesn['’]t want)\b[^\n]{0,200}?:"
    r"(?=\s|[\"“'`])\s*",
    re.IGNORECASE,
)
"""A sentence that says that a person's words follow."""
_NAMES_USER = re.compile(
    r"[^\n:]{0,120}\b(?:the |this |an? |following )?(?:user|visitor)(?:['’]s?)?\b[^\n:]{0,80}:",
    re.IGNORECASE,
)
_SAYS_SO = re.compile(
    r"\b(?:said|says|asks?|asked|requests?|messages?|questions?|quer(?:y|ies)|inputs?|wrote|writes|feedback"
    r"|comment(?:ed|s)?|respond to|reply"
    r" to|answer|voice|speech|transcribed|dictated|instruction|prompt|utterance|typed|entered)\b",
    re.IGNORECASE,
)
_NOT_SAID = re.compile(
    r"\b(?:about|memor\w+|know|facts|preferences|profile|history|uploaded|attached|my|our"
    r"|i)\b",
    re.IGNORECASE,
)
_ORDERED_WORDS = re.compile(
    r"\A(?:(?:please )?(?:answer|reply to|respond to|handle|process) (?:to )?(?:this|the|following) [^\n:.]{0,40}"
    r"\b(?:using|tools?|user|customer|context|visitor)\b[^\n:.]{0,30}:[ \t]*"
    r"|below is the user['’]s [^\n.:]{1,40}[.:][^\n]{0,200}\n\s*\n"
    r"|(?:search|web|tool) results:\n[\s\S]{0,8000}?\n\s*\n(?:given|using|based on|with) (?:these|the"
    r"|this)[^\n:]{0,60}:[ \t]*"
    r"|(?:customer|user|incoming|client) (?:e-?mail|message|ticket|review|comment):[ \t]*\n-{3,}\n)",
    re.IGNORECASE,
)
"""A sentence of a program right before the words."""
_OWN = re.compile(r"\b(?:my|our|me|i|we|i['’]m)\b", re.IGNORECASE)
"""A person's own voice: such a line is no program's."""
_ANNOUNCED = re.compile(
    r"\A\W{0,3}(?!message from (?:the )?(?:agent|orchestrator|supervisor|coordinator|worker|planner|main agent"
    r"|sub-?agent)\b)(?:(?:(?:an? )?(?:new|incoming|forwarded) )?(?:message|text|sms|dm|reply|comment|mention"
    r"|email|mail|post|request"
    r"|voice message)(?: was)?(?: received)? (?:from|by)|forwarded from|you were (?:mentioned|tagged)[^\n]{0,80} by"
    r"|(?:@[\w-]{1,40} )?(?:mentioned|tagged|replied to) you[^\n]{0,60}) [^\n]{1,100}:[ \t]*\n+",
    re.IGNORECASE,
)
_NO_PROGRAM = (
    r"(?!(?:tool|function|action|command|code|shell|terminal|system|automat|auto\b|schedul|cron|notif|background"
    r"|hook|observ|result|output|error|event|internal|sub-?agent|worker|agent\b)|[^\]\n]{0,60}(?:->|→)"
    r"|[^\]\n]{0,80}(?:compact|summar|condens|histor))"
)
"""Not the mark of what a program says itself."""
_SENDER = re.compile(
    r"\A(?:"
    rf"\[{_NO_PROGRAM}(?=[^\]\n]{{1,100}}\]:)(?!\d{{1,3}}\])[^\]\n]{{1,100}}\]:[ \t]*"
    r"|\[(?:telegram|whatsapp|discord|slack|signal|matrix|sms|imessage|wechat|line|teams|email|irc|mattermost|web"
    r"|voice"
    r"|audio|transcri\w+|dictat\w+|speech|forwarded|reply\w*|from|via|channel|group|dm)\b[^\]\n]{0,100}\]:?[ \t]*"
    r"|\[(?=[^\]\n]{0,60}@\w)[^\]\n]{1,100}\]:?[ \t]*"
    r"|\[(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d\d)[^\]\n]{0,60}\]:?(?![ \t]*(?:error|warn"
    r"|info|debug|fatal)\b)"
    r"[ \t]*"
    r"|<@[!&]?\w{1,40}>(?: (?:says|said|wrote|asks))?:[ \t]*"
    r"|@[\w.-]{1,40}(?: (?:says|said|wrote|asks))?:[ \t]*"
    rf"|(?:\[{_NO_PROGRAM}(?=[^\]\n]{{0,100}}(?:[:|#@•]|[a-z] \d))(?!https?:)[^\]\n]{{1,120}}\][ \t]*)+(?=[^\s(:])"
    r"|(?:\*\*)?[^\W\d][^\n:()\[\]*]{0,40}(?:\*\*)? ?[(\[](?:@[\w.-]{1,40}|<?@?U\w{3,12}>?|id:? ?\w{1,20}"
    r"|[^()\[\]\n]{0,20}\d{1,2}:\d\d"
    r"[^()\[\]\n]{0,12})[)\]](?: in #?[\w-]{1,40})?:[ \t]*"
    r"|[^\W\d][^\n:()\[\]]{0,40} \((?:@[\w.-]{1,40}|<?@?U?\d{3,}>?|id:? ?\w{1,20}"
    r"|[^()\n]{0,20}\d{1,2}:\d\d[^()\n]{0,12})\):[ \t]*"
    r"|\[\d{1,2}:\d\d(?::\d\d)?\] [^\W\d][\w .-]{0,30}: |[a-z][\w.-]{1,30}> (?=\S)|<[a-z][\w.-]{1,30}> (?=[^<\n]+\Z)"
    r"|[^\W\d][\w .-]{0,30} \((?:via|on|from) [\w #-]{1,30}\): "
    r"|[^\W\d][^\n:()\[\]]{0,40} <[^<>\n\s]{1,60}>:[ \t]*"
    r")",
    re.IGNORECASE,
)
"""Who speaks, or when, before the words of a chat."""
_STAMPED_LINE = re.compile(r"^\[?(?:\d{4}-\d\d-\d\d|\d{1,2}:\d\d:\d\d)", re.MULTILINE)
_VOICE = re.compile(
    r"\A\[(?:voice|audio)(?: (?:message|note))?(?: transcript)?: ?(?P<words>[^\]]+)\]\Z|\A\(?(?:transcribed"
    r"|dictated|transcript(?:ion)?)"
    r"[^\n:()]{0,40}\)?: ?(?P<said>[\s\S]+)\Z",
    re.IGNORECASE,
)
_REPLIED = re.compile(
    r"\A\[?(?:reply|replying|in reply|reply_to|quoted|quoting"
    r"|forwarded)\b[^\n]{0,120}\n(?:>[^\n]*\n)+(?:[-_*]{3,}\n)?\s*"
    r"|\A\((?:in reply|replying|reply|forwarded|context|scene|the scene|note|system|memory|via|sent|time"
    r"|date)\b[^()\n]{1,200}\)\s*\n+"
    rf"|\A\[{_NO_PROGRAM}(?=[^\]\n]{{0,60}}:|reply|attach|image|file|memor|context"
    rf"|user sent)[A-Za-z][^\[\]\n]{{2,400}}\]\s*\n+"
    r"|\A[^\n]{0,60}\bmetadata\b[^\n]{0,40}:[ \t]*\n```[^`]{0,4000}```\s*",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"\A(?P<open>[\[(*_]{0,3})(?:(?:the )?(?:current|local|user['’]?s?(?: local)?|system|message|server|today['’]?s) "
    r"(?:date(?: ?(?:and|/|&) ?time)?|time|datetime|day|timestamp)|date|time|timestamp|now|today)\b(?: is|:|=)"
    r"[^\n]{0,100}?(?:\d{4}|\d{1,2}:\d\d)[^\n]{0,60}\n+",
    re.IGNORECASE,
)
"""A line that gives the time."""
_NOTE_AFTER = re.compile(
    r"\n\s*(?:<!--[^\n]{0,300}-->|/(?:no_)?think|\[this (?:message|was)\b[^\[\]]{0,300}\]"
    r"|\(context:[^()]{0,400}\))\s*\Z|"
    r"\n\s*(?:\[(?:sent|received|timestamp|time|date|current|system|note to|ooc|attach\w*|image|photo|file"
    r"|document|context"
    r"|reminder|instructions?|metadata|meta|message|location|reply|edited|author'?s note|style"
    r"|language)\b[^\[\]]{0,1500}\]"
    r"|\((?:system|note to (?:ai|assistant|model)|respond|reply|answer|current|sent|ooc)\b[^()]{0,100}(?:markdown"
    r"|json|system"
    r"|user|\d{1,2}:\d\d|\d{4}-\d\d)[^()]{0,300}\)"
    r"|(?:[-_*]{3,}\s*)?\((?:remember|reminder|note)\b[^()]{0,400}\b(?:you are|in character|never|always"
    r"|do not)\b[^()]{0,400}\)"
    r"|-- ?\n ?sent (?:via|from|with|by) [^\n]{1,100})\s*\Z",
    re.IGNORECASE,
)
"""A note in brackets behind the words."""
_ADDED = re.compile(
    r"\n\n(?:(?:reply|respond|answer|think|keep|stay|remember|use|write)\b[^\n]{0,120}\b(?:the user"
    r"|these instructions|this prompt"
    r"|in character|step by step before)\b[^\n]{0,200}"
    r"|(?:format|return|give|write|output) (?:your|the) (?:answer|response|reply|output) (?:as|in) (?:valid "
    r"|a )?json\b[^\n]{0,40}[{\n`][^\n]*"
    r"|the (?:open|current|active|attached|selected) (?:file|page|document|code|text|selection) (?:is"
    r"|contains)\b[^\n]{0,100}:[ \t]*\n"
    r"|(?:[-_*]{3,}\n)?(?:context|sources|references|search results|retrieved documents"
    r"|knowledge)(?: \w+)?:[ \t]*\n(?=\W?\[|[\s\S]{0,4000}\n-{3,}\s*\Z)"
    r"|here (?:is|are) (?:the |some |a few )?(?:relevant |additional )?(?:web |search )+results\b[^\n]{0,100}"
    r"|attached (?:file|document|image)s?\b[^\n]{0,200}:"
    r"|the (?:user|customer) has (?:attached|uploaded|shared)\b[^\n]{0,200}"
    r"|(?:important: )?(?:the output should be formatted as an? |(?:please )?(?:respond|reply|answer)(?: only"
    r"| strictly)? "
    r"(?:with|in|as|using) (?:a )?(?:valid )?json\b[^\n]{0,60}(?:schema|conform|match))[^\n]*"
    r"|you must (?:respond|reply|answer|return|always|use)\b[^\n]{0,200}(?:json|format|schema|tool)[^\n]*)",
    re.IGNORECASE,
)
"""The first line of what a program adds behind the words."""
_PAIRED = re.compile(
    r"^(?P<rule>[\[=*~-]{1,12} ?)(?:(?:begin|start) (?:of )?(?P<named>[^\]\n=]{2,80}?)|(?P<attached>attach\w*"
    r"|file|document"
    r"|uploaded file|context|page|web ?page|search results?)\b[^\]\n=]{0,120}?)(?P<close> ?[\]=*~-]{1,12})[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_PAIR_ENDS = re.compile(
    r"^[\[=*~-]{1,12} ?(?:end\b|/)[^\n]{0,120}$",
    re.IGNORECASE | re.MULTILINE,
)
"""Lines around a file that a program quotes."""
_FIELD = re.compile(r"(?P<name>[A-Za-z][\w -]{1,24}):[ \t]+(?P<value>\S[^\n]*)")
_SENDING = frozenset([
    "from", "sender", "channel", "chat", "chat id", "platform", "message id", "timestamp", "time", "date", "group",
    "user", "user id", "username", "thread", "phone", "to", "sent", "received", "via", "server", "customer name",
    "conversation id", "session", "language", "locale",
])  # fmt: skip
_BODY = frozenset(["message", "text", "body", "content", "msg"])

_JSON_WORDS = (
    "message",
    "text",
    "content",
    "body",
    "query",
    "question",
    "input",
    "prompt",
    "utterance",
    "user_message",
)
_JSON_SENDER = frozenset([
    "sender", "from", "author", "user", "username", "user_name", "user_id", "channel", "from_user", "chat_id",
    "sender_name", "speaker", "name",
])  # fmt: skip
_JSON_RESULT = frozenset([
    "tool", "tool_name", "tool_call_id", "result", "results", "success", "exit_code", "stdout", "observation",
    "returncode", "function", "output", "status",
])  # fmt: skip
_JSON_EVENT = ("event", "event_type", "type", "kind")
_JSON_TIME = frozenset(["time", "timestamp", "date", "ts", "reason", "session", "session_id"])
"""One of these stands in an event whose name is a mere type: shapes and fruits have types too."""
_QUOTES = (('"""', '"""'), ("```", "```"), ('"', '"'), ("“", "”"), ("'''", "'''"))


class Label(msgspec.Struct, frozen=True):
    """A label: its `kind`, where its line starts and its text begins, and whether a sign of a heading marks it."""

    kind: Kind
    start: int
    inner: int
    heading: bool


@reads_text()
def words_in_template(text: str) -> str | None:
    """The words of a person in a template; `None` where there is no sign of one."""
    read = _labelled(text)
    if read is None and (ordered := _ORDERED_WORDS.match(text)) and not _OWN.search(ordered[0]):
        read = _unquoted(_before_instructions(re.split(r"\n-{3,}(?:\n|\Z)", text[ordered.end() :])[0]))
    if read is None:
        read = _headers(text)
    if read is None and (found := _SPOKEN.match(text)) and not _OWN.search(found[0]):
        read = _whole_quote(_before_instructions(text[found.end() :]))
    rest = text if read is None else read
    rest = _without_notes(rest)
    return rest if read is not None or rest != text.strip() else None


class JsonMessage(msgspec.Struct, frozen=True):
    """A message that is one JSON object: the words of a person, or what a program reports."""

    words: str
    speaker: Literal["person", "environment", "notice"]


@reads_text()
def json_message(text: str) -> JsonMessage | None:
    """The meaning of a message that a program wrote as a JSON object; `None` for any other text."""
    if not (text.startswith("{") and text.endswith("}")) or len(text) > _LONGEST_JSON:
        return None
    try:
        value = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    event_name = next((name for name in _JSON_EVENT if isinstance(value.get(name), str)), "")
    event = str(value.get(event_name, ""))
    words = next((value[name] for name in _JSON_WORDS if isinstance(value.get(name), str)), "")
    if words and (re.search(r"user|human|chat", event) or value.get("role") == "user"):
        return JsonMessage(words.strip(), "person")
    if not _JSON_RESULT.isdisjoint(value) or value.get("role") in ("tool", "function", "system"):
        return JsonMessage("", "environment")
    named = "event" in event_name or not _JSON_TIME.isdisjoint(value)
    if event and named and not _JSON_SENDER.intersection(value):
        return JsonMessage("", "notice")
    if words and not _JSON_SENDER.isdisjoint(value) and len(value) > 1:
        return JsonMessage(words.strip(), "person")
    return None


_THE_USER = re.compile(
    r"\b(?:user|human)|my request|用户|nutzer|usuario|utilisateur|usuário|utente|пользовател|ユーザー|사용자",
    re.IGNORECASE,
)


def _labelled(text: str) -> str | None:
    """The words below the last label of a person's words, up to what a program says after them."""
    labels = _labels(text)
    sure = [
        place
        for place, label in enumerate(labels)
        if label.kind == "words"
        and (len(labels) > 1 or label.heading or _THE_USER.search(text[label.start : label.inner]))
    ]
    place = sure[-1] if sure else _last_maybe(text, labels)
    if place is None:
        return None
    words = text[labels[place].inner : _end_of_section(text, labels, place)]
    words = _before_instructions(_without_rules(words))
    return _whole_quote(words) if words.strip() else None


_ROLE_NAME = re.compile(
    rf"(?:voice |speech )?transcript(?:ion)?|asr|{_WHICH}{_OWNER}|用户|(?:be)?nutzer(?:in)?|usuario|utilisateur"
    rf"|usuário|utente"
    rf"|пользователь|ユーザー|사용자",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"user|human|(?:voice |speech )?transcript(?:ion)?|asr|caller|用户|пользователь|ユーザー"
    r"|사용자",
    re.IGNORECASE,
)
_PROGRAMS_BEFORE = re.compile(
    r"\s*(?:\[[^\]\n]{1,200}\]|\([^()\n]{1,400}\)|【[^】\n]{1,200}】)\s*\n|\s*```"
    r"|(?:[^\n]*\n){1,200}[-=_*]{3,}[ \t]*\n\s*\Z"
)


def _last_maybe(text: str, labels: Sequence[Label]) -> int | None:
    """The last label that may be of the words, where the text shows that a program wrote it."""
    found = [place for place, label in enumerate(labels) if label.kind == "maybe"]
    if not found:
        return None
    place = found[-1]
    last = labels[-1]
    ends = last.kind == "answer" and not text[last.inner :].strip() and last.start > labels[place].start
    before = text[: labels[place].start]
    led = any(_LEADS.match(line) for line in before[:4000].splitlines() if len(line) > 3)
    name = text[labels[place].start : labels[place].inner].strip(" \n:：*#[]").lower()
    role = _ROLE_NAME.fullmatch(name) is not None
    if (
        _ALONE.fullmatch(name)
        and not before.strip()
        and len(found) == 1
        and len(labels) == 1
        and "\n" not in text.strip()
    ):
        return place
    if (role and _PROGRAMS_BEFORE.match(before)) or (name == "instruction" and before.lstrip().startswith("```")):
        return place
    if (
        not before.strip()
        and name.isupper() is False
        and text[: labels[place].inner].strip(" *:#").isupper()
        and len(labels) > 1
    ):
        return place
    marked = any(label.kind == "program" for label in labels)
    headed = labels[place].heading and any(label.heading and label.kind in ("program", "around") for label in labels)
    answered = headed and any(label.kind == "answer" and label.heading for label in labels[place:])
    after = text[_end_of_section(text, labels, place) :]
    ordered = re.search(
        r"\b(?:final answer|expected (?:criteria|output)"
        r"|output fields)\b",
        text[labels[place].inner :][:4000],
    )
    if (
        ends
        or led
        or marked
        or answered
        or (ordered and not before.strip())
        or (after.strip() and headed and last.kind == "answer")
    ):
        return place
    return None


def _end_of_section(text: str, labels: Sequence[Label], place: int) -> int:
    """The place where the section of a label ends: at the next label that a program may have written there."""
    own = labels[place]
    for label in labels[place + 1 :]:
        gap = text[own.inner : label.start]
        if not gap.strip():
            continue
        if label.heading or label.kind == "answer" or (label.kind in ("program", "around") and gap.endswith("\n\n")):
            return label.start
    return len(text)


def _before_instructions(words: str) -> str:
    """The words without the paragraphs at their end that tell the model what to do."""
    parts = re.split(r"\n[ \t]*\n", words)
    kept = len(parts)
    for place in range(1, len(parts)):
        if _INSTRUCTION.match(parts[place]):
            kept = place
            break
    return "\n\n".join(parts[:kept]).strip()


def _without_rules(words: str) -> str:
    """The words without lines of dashes around them."""
    return re.sub(r"\A\s*[-=_*]{3,}[ \t]*\n|\n[-=_*]{3,}\s*\Z", "", words)


def _unquoted(words: str) -> str:
    words = words.strip()
    for opening, closing in _QUOTES:
        inner = words[len(opening) : -len(closing)]
        if (
            words.startswith(opening)
            and words.endswith(closing)
            and len(words) > 2 * len(opening)
            and opening not in inner
        ):
            return inner.strip()
    return words


def _labels(text: str) -> list[Label]:
    """The labels at the beginnings of lines, at both ends of a long text."""
    ends = (
        [(0, text)] if len(text) <= 2 * _SCANNED else [(0, text[:_SCANNED]), (len(text) - _SCANNED, text[-_SCANNED:])]
    )
    found: list[Label] = []
    for position, part in ends:
        for line in part.splitlines(keepends=True):
            start, position = position, position + len(line)
            bare = line.strip()
            if not bare or not (":" in bare or "：" in bare or bare[0] in "#[=*-_<【"):
                continue
            label = _label(bare[:_LONGEST_LABEL], bare)
            if (
                label is None
                and (named := _NAMES_USER.match(bare[:240]))
                and _SAYS_SO.search(named[0])
                and not _NOT_SAID.search(named[0])
            ):
                rest = bare[named.end() :].strip()
                if not rest or start:
                    label = "words", named.end(), False
            if label is not None:
                kind, offset, heading = label
                found.append(Label(kind, start, start + line.index(bare) + offset, heading))
    return found


_HEADING_LINE = re.compile(
    r"#{1,6} +(?P<a>[^\n#:：]{2,60}?)[ :：]*#*\Z"
    r"|\[\[ ?#* ?(?P<b>[\w ]{2,40}?) ?#* ?\]\]"
    r"|\[(?P<c>[A-Za-z][\w' ’-]{2,40})\]:?(?=\s|\Z)"
    r"|[=*~_-]{2,} ?(?P<d>[^\n=*~_-][^\n=*~_]{1,60}?) ?[=*~_-]{2,}:?\Z"
    r"|(?:\*\*|__)(?P<e>[^\n*_]{2,60}?)(?:\*\*|__)"
    r"|【(?P<g>[^】\n]{2,30})】[:：]?"
    r"|(?P<f>[\w(][^\n:：.?!\"]{1,60}?)[ ]?[:：](?!//)"
)


def _label(head: str, line: str) -> tuple[Kind, int, bool] | None:
    """The kind of the label that a line begins with, where the text after it begins, and whether it is a heading."""
    found = _HEADING_LINE.match(head)
    if found is None:
        return None
    group = str(found.lastgroup)
    name = found[group].strip(" :：").lower()
    offset = found.end()
    if group == "e" and line[offset : offset + 1] in (":", "："):
        offset += 1
    if group == "e" and not (
        found["e"].rstrip().endswith((":", "：")) or offset == found.end() + 1 or line[offset:] == ""
    ):
        return None
    for kind, names in _LABELS:
        if names.fullmatch(name):
            return kind, offset, group != "f"
    return None


def _whole_quote(words: str) -> str | None:
    """The words without quotation marks; `None` where these end before the words do: someone speaks about a quote."""
    bare = _unquoted(words)
    return None if bare == words.strip() and bare[:1] in ('"', "“", "'") and len(bare) > 1 else bare


def _headers(text: str) -> str | None:
    """The words below lines that name sender, channel and the like, as in a letter."""
    fields = 0
    marked = False  # by a field that no letter has
    position = 0
    for line in text.splitlines(keepends=True):
        field = _FIELD.match(line)
        name = field["name"].strip().lower() if field else line.strip().rstrip(":").lower()
        if name in _BODY and fields and line.strip()[len(name) :][:1] == ":":
            return text[position + line.index(":") + 1 :].strip() if fields >= 2 else None
        if field is None or name not in _SENDING:
            break
        fields += 1
        marked = marked or name not in ("from", "to", "date", "sent", "time", "language")
        position += len(line)
    rest = text[position:]
    return rest.strip() if fields >= 3 and marked and rest.startswith("\n") and rest.strip() else None


def _without_notes(text: str) -> str:
    """The text without who speaks, when, what was quoted and noted around the words."""
    bare = text.strip()
    bare = _without_pairs(bare)
    for _ in range(4):
        before = bare
        voice = _VOICE.match(bare)
        if voice is not None and not _OWN.search(bare.split(":", 1)[0]):
            return _unquoted(voice["words"] or voice["said"])
        announced = _ANNOUNCED.match(bare)
        if announced is not None and not _OWN.search(announced[0]):
            bare = bare[announced.end() :]
        replied = _REPLIED.match(bare)
        if replied is not None and bare[replied.end() :].strip():
            bare = bare[replied.end() :]
        clock = _CLOCK.match(bare)
        if clock is not None and (
            clock["open"]
            or "current" in clock[0].lower()
            or clock[0].endswith("\n\n")
            or _CLOCK.match(bare[clock.end() :])
        ):
            bare = bare[clock.end() :]
        sender = _SENDER.match(bare)
        if sender is not None and bare[sender.end() :].strip() and len(_STAMPED_LINE.findall(bare[:4000])) <= 1:
            bare = bare[sender.end() :]
        bare = bare.strip()
        if bare == before:
            break
    if bare != text.strip() and (below := _labelled(bare)) is not None:
        bare = below
    bare = _without_files(bare)
    added = _ADDED.search(bare)
    if added is not None and bare[: added.start()].strip():
        bare = bare[: added.start()]
    labels = _labels(bare) if "\n\n" in bare else []
    for label in labels:
        if label.kind == "program" and label.start and bare[: label.start].endswith("\n\n") and _is_added(bare, label):
            bare = bare[: label.start]
            break
    for _ in range(3):
        note = _NOTE_AFTER.search(bare[-2000:]) if bare.endswith(("]", ")", "-->", "think")) else None
        if note is None or not bare[: len(bare) - len(bare[-2000:]) + note.start()].strip():
            break
        bare = bare[: len(bare) - len(bare[-2000:]) + note.start()]
    return bare.strip()


_ATTACHED = re.compile(
    r"\W*(?:attach|referenced|uploaded|mentioned|selected|editor|ide\b|workspace|environment|active|open|current"
    r"|cursor"
    r"|(?:web )?search|retrieved|relevant|available|long-term|user|system|repo|chat history|conversation)",
    re.IGNORECASE,
)


_PRELUDE = re.compile(
    r"\A(?:(?:---+\n(?:[\w -]{1,30}: ?[^\n]{0,200}\n){1,12}---+\n)|(?:(?:workspace|branch|cwd|working directory"
    r"|shell|active file|current file|repository|timezone|locale): ?[^\n]{0,200}\n){2,12}|(?:ide|editor|session"
    r"|client|app|device) (?:context|info|state):[ \t]*\n(?:[ \t]+[^\n]{0,200}\n){1,20}"
    r"|(?:the user (?:has )?(?:uploaded|attached|shared|opened)|you are in the directory|the (?:current )?(?:time"
    r"|date) is)\b[^\n]{0,200}\n)\s*",
    re.IGNORECASE,
)
"""Lines about the machine before the words."""
_FILES = re.compile(
    r"\A\W{0,4}(?:attached|uploaded|referenced|mentioned|open|attachments?"
    r"|files?)\b[^\n]{0,80}:[ \t]*\n(?:(?:[ \t]*(?:[-*•]|\d+[.)]) [^\n]*\n)+|```[^`]{0,20000}```"
    r"[ \t]*\n)\s*\n",
    re.IGNORECASE,
)
"""A list of files before the words."""


def _without_files(text: str) -> str:
    found = _PRELUDE.match(text)
    if found is not None and text[found.end() :].strip():
        text = text[found.end() :].strip()
    found = _FILES.match(text)
    return text[found.end() :].strip() if found is not None and text[found.end() :].strip() else text


def _is_added(text: str, label: Label) -> bool:
    """True if a program's section follows the words: under a heading, or over several lines."""
    line = text[label.start :].split("\n", 1)[0]
    return (label.heading or line.rstrip().endswith(":")) and _ATTACHED.match(line) is not None


def _without_pairs(text: str) -> str:
    """The text without files between a line that opens and one that ends them."""
    opening = _PAIRED.search(text)
    if opening is None:
        return text
    ends = [closing for closing in _PAIR_ENDS.finditer(text, opening.end())]
    if not ends:
        return text
    rest = f"{text[: opening.start()].rstrip()}\n\n{text[ends[-1].end() :].lstrip()}".strip()
    return rest or text
