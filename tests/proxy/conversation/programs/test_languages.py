"""The kinds of program text in other languages than English, and what people say in them."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import Evidence, TurnClass, classify
from openclaw_rl.proxy.conversation.compacted import replaces_history
from openclaw_rl.proxy.conversation.programs.languages import LANGUAGES
from openclaw_rl.proxy.conversation.speaker import read_user
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.fixtures.clients import TOOLS


def taken(*texts: str, system: str = "", tools: bool = False) -> TurnClass:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    chat = normalize_chat({"messages": messages, "tools": TOOLS if tools else None})
    return classify(Evidence({}, chat.messages, tools, Chain(chat.messages).speeches))


TITLES = {
    "zh": [
        "请为以上对话生成一个简短的标题，不超过10个字，只输出标题。",
        "根据本次会话的内容，起一个简洁的标题，不要使用标点符号。",
    ],
    "de": [
        "Erstelle einen kurzen Titel für diese Unterhaltung. Gib nur den Titel aus.",
        "Generiere für das obige Gespräch eine Überschrift mit höchstens fünf Wörtern, ohne Anführungszeichen.",
    ],
    "es": [
        "Genera un título breve para esta conversación. Responde solo con el título.",
        "Escribe un título de no más de cinco palabras para la conversación anterior, sin comillas.",
    ],
    "fr": [
        "Génère un titre court pour cette conversation. Réponds uniquement avec le titre.",
        "Rédigez un titre de 5 mots maximum pour la conversation ci-dessus, sans guillemets.",
    ],
    "it": [
        "Genera un titolo breve per questa conversazione. Rispondi solo con il titolo.",
        "Scrivi un titolo di massimo cinque parole per la conversazione precedente, senza virgolette.",
    ],
    "pt": [
        "Gere um título curto para esta conversa. Responda apenas com o título.",
        "Crie um título de no máximo cinco palavras para a conversa acima, sem aspas.",
    ],
    "ru": [
        "Придумай короткое название для этого диалога. Выведи только название.",
        "Сгенерируйте краткий заголовок для приведённой выше беседы, не более пяти слов, без кавычек.",
    ],
    "ja": [
        "この会話に短いタイトルを付けてください。タイトルのみを出力してください。",
        "上記の会話の内容を表す簡潔なタイトルを10文字以内で生成してください。引用符は使わないでください。",
    ],
    "ko": [
        "이 대화에 대한 짧은 제목을 생성하세요. 제목만 출력하세요.",
        "위 대화의 내용을 나타내는 간결한 제목을 10자 이내로 작성하세요. 따옴표는 사용하지 마세요.",
    ],
}
WORK = {
    "zh": [
        "请总结以上对话，保留用户的请求、关键决定和未完成的任务，供另一个助手继续工作。",
        "上下文窗口即将用尽。请将目前为止的会话压缩成一份详细的摘要，不要调用任何工具。",
    ],
    "de": [
        "Fasse die bisherige Unterhaltung zusammen, damit ein anderer Agent die Arbeit fortsetzen kann.",
        "Das Kontextfenster ist fast voll. Erstelle eine ausführliche Zusammenfassung des bisherigen "
        "Gesprächsverlaufs und rufe keine Werkzeuge auf.",
    ],
    "es": [
        "Resume la conversación anterior para que otro agente pueda continuar el trabajo.",
        "La ventana de contexto está casi llena. Crea un resumen detallado de la conversación hasta ahora, sin usar "
        "herramientas.",
    ],
    "fr": [
        "Résume la conversation ci-dessus afin qu'un autre agent puisse poursuivre le travail.",
        "La fenêtre de contexte est presque pleine. Rédige un résumé détaillé de la conversation jusqu'ici, sans "
        "appeler d'outils.",
    ],
    "it": [
        "Riassumi la conversazione precedente in modo che un altro agente possa continuare il lavoro.",
        "La finestra di contesto è quasi piena. Crea un riassunto dettagliato della conversazione finora, senza usare "
        "strumenti.",
    ],
    "pt": [
        "Resuma a conversa acima para que outro agente possa continuar o trabalho.",
        "A janela de contexto está quase cheia. Crie um resumo detalhado da conversa até agora, sem usar ferramentas.",
    ],
    "ru": [
        "Кратко изложи приведённый выше диалог, чтобы другой агент мог продолжить работу.",
        "Контекстное окно почти заполнено. Составь подробную сводку всей беседы до этого момента, не вызывая "
        "инструменты.",
    ],
    "ja": [
        "これまでの会話を要約し、別のエージェントが作業を続けられるようにしてください。",
        "コンテキストウィンドウがまもなく上限に達します。ここまでの会話の詳細な要約を作成し、ツールは呼び出さないでください。",
    ],
    "ko": [
        "지금까지의 대화를 요약하여 다른 에이전트가 작업을 이어갈 수 있도록 하세요.",
        "컨텍스트 창이 거의 가득 찼습니다. 지금까지의 대화에 대한 자세한 요약을 작성하고 도구를 호출하지 마세요.",
    ],
}
SYSTEMS = {
    "zh": "你是一个对话标题生成器。根据用户的消息生成简短的标题。",
    "de": "Du bist ein Assistent, der Unterhaltungen zusammenfasst. Du bekommst einen Chatverlauf.",
    "es": "Eres un asistente que resume conversaciones. Recibirás un historial de mensajes.",
    "fr": "Tu es un assistant chargé de résumer des conversations. Tu reçois un historique.",
    "it": "Sei un assistente che riassume conversazioni. Ricevi una cronologia.",
    "pt": "Você é um assistente que resume conversas. Você recebe um histórico.",
    "ru": "Ты помощник, который составляет краткие заголовки для диалогов.",
    "ja": "あなたは会話を要約するアシスタントです。会話履歴が与えられます。",
    "ko": "당신은 대화를 요약하는 도우미입니다. 대화 기록이 주어집니다.",
}
REPLACED = {
    "zh": ["以下是之前对话的摘要：\n他们谈到了蕨类植物。", "此前的对话历史已被压缩，摘要如下：蕨类植物很干。"],
    "de": [
        "Hier ist eine Zusammenfassung der bisherigen Unterhaltung:\nEs ging um Farne.",
        "Der bisherige Gesprächsverlauf wurde zusammengefasst: Es ging um Farne.",
    ],
    "es": [
        "Este es un resumen de la conversación anterior:\nHablaron de helechos.",
        "El historial de la conversación ha sido resumido: hablaron de helechos.",
    ],
    "fr": [
        "Voici un résumé de la conversation précédente :\nIls ont parlé de fougères.",
        "L'historique de la conversation a été résumé : ils ont parlé de fougères.",
    ],
    "it": [
        "Ecco un riassunto della conversazione precedente:\nHanno parlato di felci.",
        "La cronologia della conversazione è stata riassunta: hanno parlato di felci.",
    ],
    "pt": [
        "Aqui está um resumo da conversa anterior:\nEles falaram de samambaias.",
        "O histórico da conversa foi resumido: eles falaram de samambaias.",
    ],
    "ru": [
        "Вот краткое содержание предыдущей беседы:\nОни говорили о папоротниках.",
        "История диалога была сжата: они говорили о папоротниках.",
    ],
    "ja": [
        "以下はこれまでの会話の要約です：\n彼らはシダについて話した。",
        "会話履歴は要約されました：彼らはシダについて話した。",
    ],
    "ko": [
        "다음은 이전 대화의 요약입니다:\n그들은 고사리에 대해 이야기했다.",
        "이전 대화 기록이 요약되었습니다: 고사리에 대한 이야기.",
    ],
}
RESULTS = {
    "zh": ["观察：5个苹果", "工具执行结果：\n5个苹果"],
    "de": ["Beobachtung: 5 Äpfel", "Werkzeugergebnis:\n5 Äpfel"],
    "es": ["Observación: 5 manzanas", "Resultado de la herramienta:\n5 manzanas"],
    "fr": ["Observation : 5 pommes", "Résultat de l'outil :\n5 pommes"],
    "it": ["Osservazione: 5 mele", "Risultato dello strumento:\n5 mele"],
    "pt": ["Observação: 5 maçãs", "Resultado da ferramenta:\n5 maçãs"],
    "ru": ["Наблюдение: 5 яблок", "Результат инструмента:\n5 яблок"],
    "ja": ["観察：リンゴ5個", "ツールの実行結果：\nリンゴ5個"],
    "ko": ["관찰: 사과 5개", "도구 실행 결과:\n사과 5개"],
}
PEOPLE = {
    "zh": [
        "请总结一下我们的对话。",
        "给我的文章起一个简短的标题。",
        "写一个函数，在上下文窗口满的时候总结对话。",
        "不对，再数一遍。",
        "总结这篇文章：用户喜欢苹果。",
        "我观察到：叶子是干的",
        "请总结下面这段我和客户的聊天记录,不要加任何解释。",
        "总结一下这次会议讨论的内容,用户反馈部分要详细。",
        "给这篇关于对话的文章写一个简短的标题。",
    ],
    "de": [
        "Fasse bitte unser Gespräch zusammen.",
        "Gib meinem Aufsatz einen kurzen Titel.",
        "Schreibe eine Funktion, die die Unterhaltung zusammenfasst, wenn das Kontextfenster voll ist.",
        "Nein, das ist falsch. Zähl noch einmal.",
        "Fasse diesen Artikel zusammen: Der Benutzer mag Äpfel.",
        "Kannst du die Unterhaltung in drei Punkten zusammenfassen?",
        "Fasse die Diskussion im folgenden Artikel zusammen. Antworte nur mit drei Sätzen, keine Einleitung.",
        "Fasse den Text zusammen: Der Nutzer soll in der Sitzung angemeldet bleiben.",
        "Schreib mir einen kurzen Titel für den Chat im Roman, an dem ich arbeite.",
    ],
    "es": [
        "Resume nuestra conversación, por favor.",
        "Ponle un título breve a mi ensayo.",
        "Escribe una función que resuma la conversación cuando la ventana de contexto esté llena.",
        "No, está mal. Cuenta otra vez.",
        "Resume este artículo: al usuario le gustan las manzanas.",
        "Resume la discusión del artículo, sin explicaciones.",
        "Resume la sesión de hoy del Congreso. Responde solo con tres frases.",
    ],
    "fr": [
        "Résume notre conversation, s'il te plaît.",
        "Donne un titre court à mon essai.",
        "Écris une fonction qui résume la conversation quand la fenêtre de contexte est pleine.",
        "Non, c'est faux. Recompte.",
        "Résume cet article : l'utilisateur aime les pommes.",
        "Résume la discussion de l'article, sans explication.",
        "Résume l'échange entre Pierre et l'utilisateur du forum.",
    ],
    "it": [
        "Riassumi la nostra conversazione, per favore.",
        "Dai un titolo breve al mio saggio.",
        "Scrivi una funzione che riassume la conversazione quando la finestra di contesto è piena.",
        "No, è sbagliato. Conta di nuovo.",
        "Riassumi questo articolo: all'utente piacciono le mele.",
        "Riassumi la discussione dell'articolo, senza spiegazioni.",
        "Scrivi un titolo breve per la discussione della mia tesi.",
    ],
    "pt": [
        "Resuma nossa conversa, por favor.",
        "Dê um título curto ao meu ensaio.",
        "Escreva uma função que resume a conversa quando a janela de contexto está cheia.",
        "Não, está errado. Conte de novo.",
        "Resuma este artigo: o usuário gosta de maçãs.",
        "Resuma a discussão do artigo, sem explicações.",
        "Resuma a sessão de hoje do Senado. Responda apenas com três frases.",
    ],
    "ru": [
        "Подведи, пожалуйста, итог нашей беседы.",
        "Придумай короткое название для моего эссе.",
        "Напиши функцию, которая сжимает диалог, когда контекстное окно заполнено.",
        "Нет, неверно. Посчитай ещё раз.",
        "Кратко изложи эту статью: пользователь любит яблоки.",
        "Изложи этот разговор двух пользователей форума кратко.",
        "Кратко изложи всю переписку Чехова, без пояснений.",
    ],
    "ja": [
        "私たちの会話を要約してください。",
        "私のエッセイに短いタイトルを付けてください。",
        "コンテキストウィンドウがいっぱいになったら会話を要約する関数を書いてください。",
        "違います。もう一度数えてください。",
        "この記事を要約してください：ユーザーはリンゴが好きです。",
        "この会話を要約して、説明は不要です。",
        "以下の顧客とのやり取りを要約してください。ユーザーの不満だけ。",
    ],
    "ko": [
        "우리 대화를 요약해 주세요.",
        "내 에세이에 짧은 제목을 붙여 줘.",
        "컨텍스트 창이 가득 차면 대화를 요약하는 함수를 작성해 줘.",
        "아니요, 틀렸어요. 다시 세어 보세요.",
        "이 기사를 요약해 줘: 사용자는 사과를 좋아한다.",
        "이 대화를 요약해줘. 설명 없이.",
        "다음 고객 채팅을 요약해 줘. 사용자 불만만.",
    ],
}


def pairs(table: dict[str, list[str]]) -> list[Any]:
    return [
        pytest.param(text, id=f"{name}{place}") for name, texts in table.items() for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize("order", pairs(TITLES))
@pytest.mark.parametrize("tools", [True, False])
def test_a_title_is_ordered_in_any_language(order: str, tools: bool) -> None:
    assert taken("a", "b", order, tools=tools) == TurnClass("side", "title")
    assert taken(f"{order}\n\nMy bike squeaks", tools=tools).kind == "side"


@pytest.mark.parametrize("order", pairs(WORK))
@pytest.mark.parametrize("tools", [True, False])
def test_work_on_the_conversation_is_ordered_in_any_language(order: str, tools: bool) -> None:
    assert taken("a", "b", order, tools=tools).kind == "side"
    assert read_user({"role": "user", "content": order}).speaker == "notice"


@pytest.mark.parametrize(
    "order",
    [
        "Fasse die bisherige Unterhaltung zusammen. Schreibe in <summary>-Tags.",
        "Resume la conversación anterior, sin llamar a ninguna herramienta.",
        "Riassumi la conversazione precedente in <summary>.",
        "请总结以上对话，不要调用任何工具。",
    ],
)
def test_markup_and_tools_mark_a_program_alone(order: str) -> None:
    assert taken("a", "b", order, tools=True).kind == "side"


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_a_system_text_gives_the_part_in_any_language(system: str) -> None:
    assert taken("User: a\nAssistant: b", system=system).kind == "side"


@pytest.mark.parametrize(
    "system",
    [
        "Du bist ein Gesprächspartner für jede Unterhaltung. Sprich Leute mit ihrem Namen an.",
        "Sie sind ein Berater, der Gespräche mit Kunden führt und zusammenfasst.",
        "Eres un buen compañero de conversación. Llama a la persona por su nombre.",
        "你是一个聊天伙伴。先总结用户的问题。",
    ],
)
def test_a_partner_in_conversation_plays_no_part(system: str) -> None:
    assert taken("a", "b", "c", system=system).kind == "main"


@pytest.mark.parametrize("text", pairs(REPLACED))
def test_a_summary_stands_for_a_history_in_any_language(text: str) -> None:
    assert replaces_history(text, last=False)
    assert read_user({"role": "user", "content": text}).speaker == "notice"


@pytest.mark.parametrize("text", pairs(RESULTS))
def test_a_result_is_the_environments_in_any_language(text: str) -> None:
    assert read_user({"role": "user", "content": text}).speaker == "environment"


@pytest.mark.parametrize("words", pairs(PEOPLE))
@pytest.mark.parametrize("tools", [True, False])
def test_a_person_is_heard_in_any_language(words: str, tools: bool) -> None:
    assert taken("a", "b", words, tools=tools).kind == "main"
    assert taken(words, tools=tools).kind == "main"
    assert read_user({"role": "user", "content": words}).speaker == "person"
    assert not replaces_history(words, last=True)


def test_every_language_is_tested() -> None:
    for table in (TITLES, WORK, SYSTEMS, REPLACED, RESULTS, PEOPLE):
        assert list(table) == [language.code for language in LANGUAGES]
