"""Requests of a program's own components: to classify, route, grade, rewrite, extract, complete, and not to converse.

A component has a part to play ("You are an intent classifier"), or an order whose object only a program has (the user's
message, the assistant's answer, a retrieved document, a query for a search), and a contract for its output ("only the
category", JSON, yes or no, a label at the end). People ask for such work on their own things: "classify this email",
"grade my essay", "a prompt that classifies messages". Works on texts.
"""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import any_of, mentions, reads_text

_SYSTEM, _ENDS = 3000, 1500
"""Characters of the system text, and at both ends of a message, where an order stands."""


_ABOUT = (
    r"(?:intent(?:ion)?|query|question|message|topic|language|safety|content|relevance|document|answer|response"
    r"|hallucination|title|tag|keyword|search|conversation|chat|dialogue|memory|entity|fact|request|injection"
    r"|jailbreak|prompt"
    r"|prompt injection|utterance|input|output|context|passage|sentiment|tone|moderation|guardrail|task)"
)
_HEAD = (
    r"(?:classifier|categori[sz]er|router|grader|evaluator|judge|detector|filter|rewriter|reformulator|re-?ranker"
    r"|ranker"
    r"|generator|extractor|summari[sz]er|moderator|labell?er|tagger|checker|scorer|selector|expander|optimi[sz]er"
    r"|organi[sz]er"
    r"|completer|analy[sz]er|validator|guard|enhancer|compressor|condenser|titler|synthesi[sz]er|curator)"
)
_PART = (
    r"(?:\A\W{0,8}|[.!\n]\W{0,4})(?:you are|you['’]re|you act as|act as|your role is(?: that of)?|role:|you will act as"
    r"|please act as) "
    r"(?:now )?(?:an?|the|our)? ?"
)
_ROLE = any_of(
    rf"{_PART}(?:[\w/'’-]+ ){{0,4}}?{_ABOUT}(?:[- /]\w+)?[- ]{_HEAD}\b",
    rf"{_PART}(?:[\w/'’-]+ ){{0,3}}?(?:classifier|router|grader|re-?ranker|impartial judge|rankllm)\b",
    rf"{_PART}(?:[\w/'’-]+ ){{0,4}}?(?:auto-?complet\w+|(?:inline|code|text|tab) completion|nlu"
    rf"|intent recognition|prompt injection"
    r"|fact[- ]check\w*)\b[^\n.]{0,30}\b(?:engine|system|component|module|model|service|assistant|agent|layer)\b",
    rf"{_PART}(?:[\w/'’-]+ ){{0,3}}?(?:smart |personal )?(?:memory|information|knowledge) (?:manager|organi[sz]er"
    rf"|keeper|extractor"
    r"|synthesi[sz]er|curator)\b",
    r"\byou (?:are (?:now )?)?(?:simulat(?:e|ing)|playing|role-?play(?:ing)?(?: as)?) (?:an? "
    r"|the )?(?:[\w-]+ )?(?:human |end )?"
    r"(?:user|customer)\b",
    r"\A\W{0,20}(?:you|the assistant) (?:pick|select|choose)s? (?:icons?|emojis?|tools?|agents?|models?) for (?:an? "
    r"|the )?"
    r"(?:[\w-]+ )?(?:chats?|assistant|conversations?|agents?)\b",
    r"\A\W{0,20}you (?:write|generate|create|make|compose|produce)\b[^\n.]{0,40}\b(?:quick repl(?:y|ies)|suggestions?"
    r"|starters?|greetings?"
    r"|status lines?|status messages?|branch names?|titles?|example prompts|image prompts|prompts for an? image"
    r"|pull request)\b",
    r"\A\W{0,20}you (?:classify|label|tag|route|moderate|grade|score|triage|categori[sz]e) (?:[\w'’-]+ ){0,3}?"
    r"(?:messages?|tickets?|requests?|quer(?:y|ies)|outputs?|answers?|responses?|chats?|conversations?"
    r"|utterances?)\b",
    r"\A\W{0,20}you (?:turn|translate|convert|rewrite|transform) (?:natural[- ]language |user "
    r"|the user['’]s )+(?:quer(?:y|ies)|questions?"
    r"|requests?)\b",
    r"\A\W{0,20}you (?:extract|build|maintain|keep|compress|check|review|update)\b[^\n.]{0,60}\b(?:page content"
    r"|knowledge graph|chat messages"
    r"|long-term profile|profile of the user|tool outputs?|conversations?|whether an? agent"
    r"|commands? that an? (?:ai )?agent)\b",
    r"\byou (?:never|do not|don['’]t|cannot|can['’]t) (?:talk|speak|respond|reply|write|communicate"
    r"|interact)(?: directly)? (?:to|with)"
    r" the user\b",
    r"\A\W{0,20}you (?:are (?:responsible for|in charge of)(?: the)?|classify|label|tag|route|moderate|grade|score"
    r"|triage|verify|check|review|judge"
    r"|decide|determine|detect|predict|add|apply|merge|caption|anonymi[sz]e|post-process|process|power|guard"
    r"|enrich|prepare|decompose|maintain"
    r"|update|extract|compress|format|turn|rank|select|filter)\b[^\n.]{0,80}\b(?:messages?|quer(?:y|ies)"
    r"|model outputs?|outputs of"
    r"|tool outputs?|drafts? of|draft answer|claims? against|citations?|tool calls?|chunks?|images that users"
    r"|update snippet|code edits"
    r"|transcripts? of|long-term memory|user profiles?|suggest\w+ (?:follow|prompts|replies)|smart-?reply"
    r"|retrieval (?:system|pipeline)"
    r"|search index|vector index|next edit|chat messages|notes in an app|commands? that an|whether (?:an?"
    r"|the) (?:web search|agent|answer"
    r"|message|reply|assistant))\b",
    r"\A\W{0,20}you (?:write|create|generate|produce|draft|compose|make)\b[^\n.]{0,40}\b(?:suggested|follow-?ups?"
    r"|release notes inside|handover notes?"
    r"|hand-?off notes?|training (?:data|set)|synthetic|status lines?|titles?|greetings that|quick repl\w+"
    r"|summar\w+ of chats)\b",
    r"\A\W{0,20}you (?:complete|finish|continue) (?:the |what )[^\n.]{0,40}\b(?:user|developer|person) (?:is|has been"
    r"|types|was)\b",
    rf"{_PART}[\w /'’-]{{0,40}}?(?:that|who|which) (?:prepares?|rewrites?|classif(?:y|ies)|routes?|grades?"
    rf"|scores?|rates?|ranks?|labels?|tags?|moderates?"
    r"|judges?|evaluates?|expands?|titles?|condenses?|compresses?)\b[^\n.]{0,60}\b(?:messages?|quer(?:y|ies)"
    r"|questions?|outputs?|answers?|responses?"
    r"|chats?|conversations?|requests?|documents?|passages?|inputs?)\b",
    r"\bchat title generator\b|\bsynthetic (?:users?|conversations?|questions?)\b",
)
"""The part that a component plays."""

_IMPERATIVE = re.compile(
    r"\W*(?:your (?:task|job) is to |please )?(?:decide|determine|classify|categori[sz]e|evaluate|detect|identify"
    r"|route|rate|score|judge|check|label"
    r"|tag|moderate|assess|predict|verify|select|choose|rank)\b",
    re.IGNORECASE,
)
"""A system text that begins with the order of a component."""
_USERS = (
    r"(?:(?:the|this|that|a|an|each|every|following|given|above|below|incoming|raw|last|latest|first|original) )*"
    r"(?:user|human|customer|visitor|player|caller)(?:['’]s|s['’]?)?(?: |['’ ])(?:[\w-]+ ){0,2}?(?:messages?"
    r"|questions?|quer(?:y|ies)"
    r"|prompts?|inputs?|requests?|utterances?|text|intents?|goals?|turns?|needs?|emotions?|sentiments?|mood"
    r"|language|tone|preferences?)\b"
)
_MODELS = (
    r"(?:the |an? |this |that |each )?(?:ai|assistant|model|bot|chatbot|agent|llm|language model|ai assistant"
    r"|system)(?:['’]s)? "
    r"(?:[\w-]+ ){0,2}?(?:answers?|responses?|repl(?:y|ies)|outputs?|messages?|generations?|completions?)\b"
)
_OBJECT = any_of(
    rf"\b{_USERS}",
    rf"\b{_MODELS}",
    r"\b(?:retrieved|candidate) (?:documents?|contexts?|passages?|chunks?|facts?)\b|\b(?:vector|document"
    r"|embedding) (?:database|store"
    r"|index)\b",
    r"\b(?:web |full-text |internet )?search (?:quer(?:y|ies)|engine|keywords?|terms?)\b",
    r"\bthe (?:query|utterance|submission|generation|response|output|last message|message above|message below"
    r"|following message"
    r"|user|request)\b",
    r"\b(?:conversation|chat|dialogue|transcript)(?: history| above| below)?\b",
    r"\b(?:retrieval|language model|prompt|prompts|tool outputs?|ui strings?|locale)\b",
    r"\b(?:the|this|these|following) (?:[\w-]+ )?(?:question|statement|context|chunk|thinking|command|page|answer"
    r"|reply|trajectory|claim"
    r"|transcript|memory|exchange|chat|messages|call|tool call|search results|draft|labels|topic|web page|code"
    r"|text|image|statements)\b",
    r"\b(?:search|vector) index\b|\bmissing code\b|\bjailbreak\b|\bpersonal data\b|\bsub-?questions?\b"
    r"|\bquestion-answer pairs\b"
    r"|\bnext edit\b|\bbot['’]s memory\b|\brunning summary\b|\bhistory list\b|\bagent\b|\bcitations?\b"
    r"|\bthis memory\b|\bthe (?:page|claim|note) ",
)
"""What a component works on. Some of it is in people's texts too: `_SURE` is not."""
_SURE = any_of(
    rf"\b{_USERS}",
    rf"\b{_MODELS}",
    r"\b(?:retrieved|candidate) (?:documents?|contexts?|passages?|chunks?)\b|\b(?:vector|embedding) (?:database"
    r"|store|index)\b",
    r"\b(?:raw text input to a language model|whole document|overall document|the user (?:might|may|could|would"
    r"|can|will|wants|is asking"
    r"|asks))\b",
)
_VERBS = (
    r"(?:classif(?:y|ying)|categori[sz]e|label|route|detect|determine|decide|identify|check|assess|evaluat(?:e"
    r"|ing)|judge|grad(?:e|ing)"
    r"|rat(?:e|ing)|scor(?:e|ing)|rank|rerank|select|choose|pick|match|analy[sz]e|extract|rewrite|rephrase"
    r"|reformulate|expand|convert"
    r"|transform|decompose|break down|generat(?:e|ing)|suggest|propose|predict|complete|tag|assign|moderate|flag"
    r"|verify"
    r"|compar(?:e|ing)|list|compress|situate|summari[sz]e|describe|translate|turn|improve|enhance|is|does|did|has"
    r"|should|write|create"
    r"|find|assessing|name|give|provide|store|update|order|replace|insert|apply|fix|copy|say|draft|paraphrase"
    r"|rephrase|fill in|pick|what|which)"
)
_ORDER = re.compile(
    rf"(?:\A\W{{0,6}}(?:\d{{1,2}}[.)] )?|[,:;]\s{{1,3}}|\b(?:to|and|then|please|will|must|you|should"
    rf"|if so) ){_VERBS}\b",
    re.IGNORECASE,
)
"""The verb of an order in a sentence."""
_SENTENCE = re.compile(r"[.!?]\s|\n")
_CONTRACT = any_of(
    r"\b(?:respond|reply|return|returns|output|answer|provide|give|produce|print|generate|write|include"
    r"|wrap)\b[^\n.]{0,40}"
    r"\b(?:only|just|exactly|nothing (?:else|but))\b",
    r"\bonly (?:return|output|respond|reply|answer|generate|give|write|include|print|the)\b|\bjust the\b"
    r"|\bnothing else\b",
    r"\b(?:no|without|with no|do not (?:include|add|provide|give|write|output|use)|don['’]t (?:include|add|give"
    r"|write|output|use))"
    r"(?: any)?(?: other| extra| additional| further)? (?:text|explanations?|explanation|preamble|commentary"
    r"|prose|markdown|quotes"
    r"|quotation marks|words|reasoning|numbering|punctuation)\b",
    r"\bjson\b|\byes['’\"]? or ['’\"]?no\b|\btrue or false\b|\btrue\|false\b|\bbinary score\b|\bas an integer\b"
    r"|\bnumber only\b",
    r"\b(?:a |one )?single (?:word|letter|number|line|token|label)\b|\bone (?:word|letter|line|per line)\b"
    r"|\bone of(?: the following)?:"
    r"|\bcomma[- ]separated\b|\biso code\b|\bseparated by (?:new ?lines|commas|semicolons)\b",
    r"\b(?:in|using|with) (?:this|the following) format\b|\boutput format\b|\bformat:|\bmust read\b"
    r"|\bdo not (?:answer|explain)\b"
    r"|\bdon['’]t (?:answer|explain)\b|\bdouble angle brackets\b|\bin kebab-case\b|\bno_output\b",
    r"\b(?:reply|answer|respond|output|return)(?: with| only"
    r"| exactly)* [`'\"]?[\w'’]+[`'\"]?(?:, [`'\"]?[\w'’]+[`'\"]?)*,? or [`'\"]?\w+"
    r"|\b[a-z]{2,15} ?/ ?[a-z ]{2,15} ?/ ?[a-z]|\byes ?/ ?no\b|\belse (?:output|return|reply)\b"
    r"|\bif there (?:is|are) none\b|\bempty list\b|^one of [\w, ]+[.\n]"
    r"|\bsingle (?:emoji|integer|sentence)\b|\bjsonl\b|\b(?:reply|answer|respond|output) \d for\b"
    r"|\bin at most \d+ words\b|\b(?:at most|under"
    r"|up to) \d+ (?:tokens|words|characters|sentences)\b|\bone-sentence\b|\bmax(?:imum)? \d+ char\w*"
    r"|\btrue or false\b|\bthe same (?:json )?keys\b",
    r"\bfrom (?:1|0|one) to \d+\b|\bfrom 1 \(|\bbetween 0 and 1\b|\bin \d(?:-| to )\d+ words\b"
    r"|\bmax(?:imum)?\.? \d+ words\b|\bno more than\b",
)
_LABEL_AT_END = re.compile(
    r"(?:\A|\n)[ \t#*]{0,6}(?:[\w-]+ ){0,3}?(?:questions?|keywords?|facts|score|category|intent|label|title"
    r"|summary|tags|sqlquery|sql"
    r"|quer(?:y|ies)|language|sentiment|passage|entities|triples|topics?|parts|rating|verdict|classification|json"
    r"|statements"
    r"|relevance|decision|route|agent|emoji|filename|name)[*]{0,2}:[ \t*]*\Z",
    re.IGNORECASE,
)
_QUOTED = any_of(
    r"^\W{0,4}(?:the |original |retrieved |current |last |new |follow[- ]?up |assistant['’]?s? |ai |bot |user "
    r"|user['’]s |human "
    r"|customer |submitted |expert )*(?:message|query|question|input|request|text|utterance|prompt|response"
    r"|answer|document|context"
    r"|passages?|history|conversation|messages|tools?|command|diff|schema|summary|submission|expert|transcript"
    r"|chat|output|goal"
    r"|page|facts|statements|existing memories)\]?\W{0,3}:",
    r"^\[?\d{1,2}[\]:.)] |^#{0,4} ?[A-Z][\w' -]{1,30}:(?:\s|$)",
    r"^<(?!/)[\w -]{3,40}>|\"\"\"|^-{3,}$|\[begin data\]|^>>>",
)
_CHATS = any_of(
    r"(?<!not )(?<!n't )(?<!never )\b(?:answer|help|assist|respond to|reply to|talk (?:to|with)|chat with|guide"
    r"|advise|tutor"
    r"|teach|greet|converse with)\b (?:the |their |this |any |all |your )?(?:user|customer|visitor|student|player"
    r"|question|quer|message"
    r"|people)|\bsupport(?:s|ing)? (?:the |their |our |all )?(?:users?|customers?|visitors?|students?"
    r"|players?)\b(?!['’])",
    r"\b(?:and|then) (?:answer|respond|reply|help)\b(?! (?:with |in )?(?:only|json|yes|just|exactly|one))",
)
"""The system text of an assistant that converses."""
_BUILT = any_of(
    r"\b(?:write|create|build|make|implement|design|develop|code|add|draft|give me|show me|i need|how (?:do|can"
    r"|would|to|does))\b[^\n.]{0,60}"
    r"\b(?:function|script|class|app|application|prompt|bot|endpoint|module|plugin|program|pipeline|service|api"
    r"|code|component|tool"
    r"|classifier|router|grader|agent|regex|query|model)s?\b"
)
"""Things that people have built: "a function that extracts keywords from the user's query"."""
_OURS = any_of(r"\b(?:my|our|mine|me|i|i['’]m|i['’]d|we)\b")
"""A person's own voice."""

_CERTAIN = any_of(
    # marks in the text to be completed
    r"<\|?fim_(?:prefix|suffix|middle)\|?>|<PRE>|<\|(?:user_|developer_)?cursor(?:_is_here)?\|>|\{\{FILL_HERE\}\}"
    r"|<CURSOR>",
    r"<(?:FILL|FILL_ME|FILL_HERE|MASK|HOLE|INSERT)>",
    r"\A\W{0,20}this is an? (?:connection|health|api|api key|configuration) (?:test|check)\b",
    r"\bisnewtopic\b|\bconversation title\b[^\n]{0,20}:\s*\Z",
    # graders
    r"\[the start of (?:the )?assistant|\[begin data\]|\bact as an impartial judge\b",
    r"\byou are (?:comparing|evaluating|assessing|grading|judging) (?:an? |the |whether "
    r"|how )(?:\w+ )?(?:submitted|generated|model"
    r"|ai|llm|response|answer|output)",
    r"<begin (?:unsafe content categories|conversation)>",
    r"\bwhether (?:an? |the |this )?(?:[\w'’-]+ ){0,3}?(?:message|input|response|prompt|output|request|reply"
    r"|answer|content|query)\b"
    r"[^\n.]{0,60}\b(?:polic(?:y|ies)|guidelines|safe|unsafe|harmful|on-?topic|jailbreak|injection)\b",
    r"\b(?:directed|addressed) (?:at|to) (?:the|you, the) (?:bot|assistant|ai)\b",
    # retrieval
    r"\b(?:different|alternative) versions of the (?:given )?(?:user )?(?:question|query)\b",
    r"\bsituate (?:this|the) chunk\b|\bstand-?alone question:|\bextracted relevant parts:",
    r"\bextract any part of the context\b|\bwrite a (?:short )?(?:passage|hypothetical \w+) (?:to|that would"
    r"|which would) answer\b"
    r"[^\n]{0,200}\n",
    r"\bgiven the context information, generate \d* ?questions\b|\bquestions this context can answer\b",
    # summaries that are kept up to date
    r"\A\W{0,20}current summary:[\s\S]{0,4000}\bnew lines of conversation:",
    r"\bbelow is a user message and an? (?:ai|assistant) (?:response|message)\b",
    # prompts
    r"\benhanced version of this prompt\b|\bimprove the following prompt\b[^\n]{0,80}\bonly\b",
    r"\bselect the model prompt best suited\b|\bset_title tool\b|\buse the \w*title\w* tool\b",
    r"\bcommand prefix detection\b|\bdetermine the command prefix\b",
    r"\bselect the next (?:role|speaker)\b|\bselect the next \w+ from \[",
    r"\A\W{0,20}(?:please )?(?:reply|respond|answer|say|return) (?:with )?(?:just |only "
    r"|exactly )?(?:the word )?[\"'`]?(?:ok|pong|ping|test|yes"
    r"|hello|hi)[\"'`]?(?: and nothing else| only)?[.!]?\s*\Z",
)
_COUNTED = any_of(
    r"\b\d ?(?:-|to|–) ?\d+[ -]words? (?:phrase|title|header|heading|summary|topic|name"
    r"|label)\b[\s\S]{0,200}\b(?:query|message|conversation|chat"
    r"|prompt|question|topic)\b",
    r"\b(?:name|title|folder|heading) (?:for|of|does) (?:this|the) (?:conversation|chat)\b[\s\S]{0,120}\b(?:only"
    r"|just|no quot\w+)\b",
    r"(?:直接返回|只返回|仅返回|只输出|仅输出)[^\n]{0,20}(?:主题|标题|分类|类别|关键词|结果)|字[^\n]{0,12}(?:返回|概括|总结)[^\n]{0,12}(?:主题|标题)",
)
"""A label with its length."""
_PROBE = re.compile(r"\b(?:just|only|exactly|nothing else|the word)\b", re.IGNORECASE)
_TALK_LABELS = (
    re.compile(r"^[ \t*#\[<-]{0,8}(?:user|human|customer|person|client|q)\b\W{0,3}:", re.I | re.M),
    re.compile(r"^[ \t*#\[<-]{0,8}(?:assistant|ai|bot|agent|model|chatbot|system|a)\b\W{0,3}:", re.I | re.M),
)
_COMMIT = any_of(r"\bcommit messages?\b|\bgit commits?\b|\bpull request (?:titles?|descriptions?)\b")
_DIFF = any_of(r"^(?:diff --git |@@ -\d|\+\+\+ )|<diff>|^diff:")
_UI = any_of(
    r"\b(?:ui|interface|locale|i18n|localization) (?:strings?|texts?|files?|labels?|keys?)\b|\b(?:labels|strings"
    r"|texts?) (?:for|of|on) the [\w ]{1,30}(?:page|screen|app|menu|dialog)\b|\bkeep (?:all |the )?(?:keys"
    r"|placeholders)\b"
)
_INTERFACE = any_of(
    r"\b(?:for the|in the|on the) (?:interface|ui|progress display|status bar|start screen|sidebar)\b"
    r"|\bwhat the agent is doing\b"
)
_OTHER_LANGUAGES = any_of(
    r"\b(?:resume|resumez|résume[zr]?|riassumi|resuma)\b[^\n.]{0,40}\b(?:título|titre"
    r"|titolo)\b[^\n.]{0,30}\b(?:conversaci[oó]n|conversation|conversazione"
    r"|conversa)\b",
    r"\b(?:clasifica|clasificar|détermine[zr]?|classe[zr]?|classifica)\b[^\n.]{0,40}\b(?:del usuario"
    r"|de l['’]utilisateur|dell['’]utente|do usuário)\b",
    r"\bdu (?:erzeugst|erstellst|generierst|klassifizierst|bewertest|extrahierst|prüfst)\b[^\n.]{0,60}(?:titel"
    r"|stichwört\w*|chats?"
    r"|nachricht\w*|anfrage\w*|gespräch\w*|nutzer\w*)",
    r"你是(?:一个|一名)?[^\n。]{0,12}(?:意图(?:分类|识别)|查询改写|标题生成|关键词提取|内容审核|路由|分类器|评分)",
    r"(?:判断|分类|识别|改写|提取)[^\n。]{0,12}用户(?:的)?(?:问题|意图|输入|消息|提问)",
)


_WORDS = (
    *(
        "only",
        "json",
        "format",
        "return",
        "output",
        "respond",
        "reply with",
        "reply ",
        "classif",
        "grade",
        "score",
        "route",
    ),
    *("query", "quer", "keyword", "fim_", "cursor", "<pre>", "fill", "<mask>", "<hole>", "<insert>", "chunk", "commit"),
    *(
        "judge",
        "evaluat",
        "policy",
        "intent",
        "label",
        "user",
        "assistant",
        "prompt",
        "select",
        "is a connection",
        "passage",
    ),
    *(
        "context",
        "question",
        "extract",
        "you ",
        "pong",
        "no more than",
        "words",
        "say ",
        "标",
        "用户",
        "主题",
        "du ",
        "título",
    ),
    *("titre", "titolo", "conversa", "begin", "字", "yes or no", "directed at", "yes/no"),
)
"""One of these is in every such request."""


@reads_text(lambda read, text: (read(text, has_tools=False), read(text, has_tools=True)))
def plays_component(system: str, *, has_tools: bool) -> bool:
    """A system text that makes the model a component of a program. With tools the part itself has to say so."""
    opening = system[:_SYSTEM]
    if not mentions(opening, _WORDS):
        return False
    if _ROLE.search(opening[:700]) and not _CHATS.search(opening[:1200]):
        return True
    if has_tools:
        return False
    if _CERTAIN.search(opening) or (_OTHER_LANGUAGES.search(opening[:700])):
        return True
    if _CHATS.search(opening):
        return False
    if not _CONTRACT.search(opening):
        return False
    return _IMPERATIVE.match(opening) is not None or _is_ordered(opening, _SURE)


@reads_text(lambda read, text: (read(text, text), read("", text)))
def orders_component(text: str, system: str) -> bool:
    """The only message of a request without tools orders the work of a component."""
    ends = text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}\n{text[-_ENDS:]}"
    if not mentions(ends, _WORDS) and not mentions(system[:_SYSTEM], _WORDS):
        return False
    if _CERTAIN.search(ends):
        return not ends.strip()[:40].lower().startswith("say ") or bool(_PROBE.search(ends)) or len(ends) > 60
    if _ROLE.search(ends[:700]) and not _CHATS.search(ends[:1200]):
        return True
    whole = f"{system[:_SYSTEM]}\n{ends}"
    contract = bool(_CONTRACT.search(whole))
    labelled = bool(_LABEL_AT_END.search(ends.rstrip()[-200:])) and bool(_QUOTED.search(ends))
    if _OTHER_LANGUAGES.search(ends[:700]) and (
        contract
        or re.search(
            r"只|仅|nur|sol[oa]mente|\bsólo\b|\bsolo\b"
            r"|uniquement|seulement|apenas",
            ends,
            re.IGNORECASE,
        )
    ):
        return True
    if _COMMIT.search(whole) and _DIFF.search(text[:20_000]) and (contract or _COMMIT.search(system[:_SYSTEM])):
        return True
    if (_UI.search(whole) or _INTERFACE.search(whole)) and contract and _is_ordered(whole, _OBJECT, own=True):
        return True
    if _COUNTED.search(ends) and not _OURS.search(_outside(ends)):
        return True
    if not (contract or labelled) or _BUILT.search(ends) or _CHATS.search(system[:_SYSTEM]):
        return False
    spoken = bool(_OURS.search(_outside(ends)))
    if _is_ordered(whole, _SURE) and not spoken:
        return True
    talked = all(pattern.search(text[:20_000]) for pattern in _TALK_LABELS)
    if (talked or (labelled and _QUOTED.search(ends))) and _is_ordered(whole, _OBJECT, own=talked) and not spoken:
        return True
    return contract and not spoken and bool(_QUOTED.search(ends)) and _is_ordered(whole, _OBJECT)


def _outside(text: str) -> str:
    """The text without what it quotes: an order has its own voice."""
    bare = re.sub(r"<(\w[\w-]{1,40})>[^<]{0,4000}</\1>|\"\"\"[^\"]{0,4000}\"\"\"", " ", text)
    return "\n".join(
        line for line in bare.splitlines() if not re.match(r"[ \t]*(?:\W{0,4}[\w' -]{1,30}\]?\W{0,3}:|>|\[\d+\])", line)
    )


def _is_ordered(text: str, objects: re.Pattern[str], *, own: bool = False) -> bool:
    """True if a sentence orders work on such an object. `own`: the object stands elsewhere in the text."""
    return any(_ORDER.search(one) and (own or objects.search(one)) for one in _SENTENCE.split(text))
