/** A turn: what came, what was answered, what became of it, and what a person can say about it. */

import { useState } from "preact/hooks";
import { post, remove } from "../api.js";
import { exactTime, figure, plain, signed } from "../format.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { useAction, useData, useNow } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { argumentText } from "../transcript.js";
import { Awaited, Badge, Button, Said, Score, Time, Words } from "../ui.js";

const T = S.turn;

/** @typedef {import("../transcript.js").Item} Item */

/** @param {{ item: Item, marked?: boolean, renew: (turn: string) => void }} props */
export function TurnCard({ item, marked, renew }) {
  return html`<article class=${`turn${marked ? " marked" : ""}${item.kind === "side" ? " side" : ""}`} id=${item.turn_id} tabindex="-1">
    ${item.new_messages.map((message) => html`<${Message} message=${message} />`)}
    <${Answer} item=${item} />
    <${Became} item=${item} />
    <${Actions} item=${item} renew=${renew} />
  </article>`;
}

/** @param {{ message: import("../transcript.js").NewMessage }} props */
function Message({ message }) {
  const { role, text, images } = message;
  const chip = images ? html`<${Badge} text=${T.images(images)} />` : null;
  if (message.folded || role === "system" || role === "developer") {
    return html`<details class="folded"><summary>${message.folded ? T.internal(role) : T.system}</summary><${Words} text=${text} /></details>`;
  }
  if (role === "tool") {
    return html`<details class="folded tool"><summary><${Icon} name="tool" />${T.tool}</summary><${Words} text=${text} />${chip}</details>`;
  }
  const look = role === "assistant" ? "policy" : "person";
  return html`<div class=${`bubble ${look}`}>
    <p class="who">${role === "assistant" ? T.given : T.you}</p>
    <${Words} text=${text} markdown />
    ${message.cut ? html`<p class="meta">${T.cut(message.cut)}</p>` : null}
    <${Calls} calls=${message.tool_calls} />
    ${chip}
  </div>`;
}

/** @param {{ calls: import("../transcript.js").ToolCall[] | undefined }} props */
function Calls({ calls = [] }) {
  return html`${calls.map((call) => html`<details class="folded tool">
    <summary><${Icon} name="tool" />${T.calls(plain(call.name))}</summary>
    <${Words} text=${argumentText(call.arguments)} />
  </details>`)}`;
}

/** @param {{ item: Item }} props */
function Answer({ item }) {
  const { text, reasoning, tool_calls: calls } = item.answer;
  const now = useNow();
  return html`<div class="bubble policy">
    <p class="who">${T.policy} <span class="meta">${T.by(item.version)} · <${Time} time=${item.time} now=${now} /></span></p>
    ${reasoning ? html`<details class="folded"><summary>${T.reasoning}</summary><${Words} text=${reasoning} /></details>` : null}
    ${text ? html`<${Words} text=${text} markdown />` : null}
    <${Calls} calls=${calls} />
    ${text || calls?.length ? null : html`<p class="note">${T.noAnswer}${item.status && item.status !== "complete" ? ` (${item.status})` : ""}</p>`}
  </div>`;
}

/** @param {{ item: Item }} props */
function Became({ item }) {
  const state = item.excluded ? T.excluded : item.versions.length ? "" : (T.states[item.state] ?? item.state);
  return html`<dl class="facts">
    <div><dt class="hidden">${T.verdict}</dt>
      <dd>${item.score === null
        ? html`<${Badge} text=${T.unjudged} />`
        : html`<${Score} score=${item.score} /> ${item.judged_by ? T.judgedBy(plain(item.judged_by)) : ""}`}</dd></div>
    <div><dd>${item.versions.length
      ? html`${T.learned} ${item.versions.map((number, place) => html`${place ? ", " : ""}<a href=${address("versions", String(number))}>${number}</a>`)}`
      : state}</dd></div>
    ${item.hint ? html`<div><dt>${T.hint}</dt><dd dir="auto">${plain(item.hint)}</dd></div>` : null}
    ${item.advantage === null ? null : html`<div><dt>${T.advantage}</dt><dd title=${String(item.advantage)}>${signed(item.advantage)}</dd></div>`}
    <div><dd class="meta">${item.kind}: ${plain(item.reason)}</dd></div>
    ${item.feedback.map((one) => html`<div><dt>${T.feedback(one.source)}</dt>
      <dd title=${exactTime(one.time)}>${one.score === null ? null : html`<${Score} score=${one.score} /> `}${one.text ? html`<q dir="auto">${plain(one.text)}</q>` : null}</dd></div>`)}
  </dl>`;
}

/** @param {{ item: Item, renew: (turn: string) => void }} props */
function Actions({ item, renew }) {
  const action = useAction();
  const [words, setWords] = useState("");
  const [shown, setShown] = useState("");
  const give = (/** @type {{ thumb?: string, text?: string }} */ said) =>
    action.run(async () => {
      const answer = await post("/rl/feedback", { turn_id: item.turn_id, ...said });
      setWords("");
      renew(item.turn_id);
      return T.sent(answer.score);
    });
  const exclude = () =>
    action.run(async () => {
      const path = `/rl/turns/${encodeURIComponent(item.turn_id)}/exclude`;
      await (item.excluded ? remove(path) : post(path));
      renew(item.turn_id);
      return item.excluded ? T.includedNow : T.excludedNow;
    });
  const show = (/** @type {string} */ name) => setShown(shown === name ? "" : name);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (words.trim()) void give({ text: words });
  };
  const input = (/** @type {{ currentTarget: HTMLInputElement }} */ event) => setWords(event.currentTarget.value);
  return html`<div class="actions">
    <form class="row" onSubmit=${submit}>
      <${Button} bare icon="up" label=${T.good} onClick=${() => give({ thumb: "up" })} disabled=${action.busy} />
      <${Button} bare icon="down" label=${T.bad} onClick=${() => give({ thumb: "down" })} disabled=${action.busy} />
      <input type="text" aria-label=${T.words} placeholder=${T.words} value=${words} onInput=${input} />
      ${words.trim() ? html`<button class="button primary" type="submit">${T.send}</button>` : null}
    </form>
    <div class="row">
      <${Button} quiet label=${T.why} pressed=${shown === "why"} onClick=${() => show("why")} />
      <${Button} quiet label=${T.tokens} pressed=${shown === "tokens"} onClick=${() => show("tokens")} />
      <${Button} quiet icon="off" label=${item.excluded ? T.include : T.exclude} onClick=${exclude} disabled=${action.busy} />
    </div>
    <${Said} action=${action} />
    ${shown === "why" ? html`<${Why} turn=${item.turn_id} />` : null}
    ${shown === "tokens" ? html`<${Tokens} turn=${item.turn_id} />` : null}
  </div>`;
}

/** @param {{ turn: string }} props */
function Why({ turn }) {
  const known = useData(`/rl/turns/${encodeURIComponent(turn)}`, { kinds: ["judged", "feedback", "version"] });
  return html`<section class="why" aria-label=${T.whyOf}>
    <${Awaited} of=${known}><ol>${(known.data?.story ?? []).map((/** @type {string} */ line) => html`<li dir="auto">${plain(line)}</li>`)}</ol><//>
  </section>`;
}

/** @param {{ turn: string }} props */
function Tokens({ turn }) {
  const known = useData(`/rl/turns/${encodeURIComponent(turn)}/tokens`);
  const pieces = known.data?.pieces ?? [];
  return html`<section class="why" aria-label=${T.tokens}>
    <p class="meta">${T.tokensOf}</p>
    <${Awaited} of=${known}>
      <p class="tokens" dir="auto">${pieces.map((/** @type {any} */ one) => html`<span
        class=${one.trained ? "trained" : ""}
        title=${`logprob ${figure(one.logprob)}${one.advantage === null ? "" : `, advantage ${signed(one.advantage)}`}`}
      >${plain(one.text)}</span>`)}</p>
    <//>
  </section>`;
}
