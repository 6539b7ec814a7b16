/** Try: a chat with the policy, in one column or two. */

import { useEffect, useRef, useState } from "preact/hooks";
import { chat, post } from "../api.js";
import { html } from "../html.js";
import { useAction, useData } from "../live.js";
import { S } from "../strings.js";
import { Button, Check, Choice, Said, Title, Words } from "../ui.js";

const T = S.try;

/** @typedef {{ role: "user" | "assistant", content: string, id: string, stopped?: boolean }} Line */

export function Try() {
  const status = useData("/rl/status", { kinds: ["version"] });
  const versions = useData("/rl/versions", { kinds: ["version"] });
  const name = status.data?.model.name ?? "policy";
  const rows = (versions.data?.versions ?? []).filter((/** @type {any} */ one) => one.available !== false && one.state !== "rejected");
  const models = [[name, `${name} (${T.live})`], ...rows.map((/** @type {any} */ one) =>
    [`${name}@${one.number}`, one.number ? S.versions.number(one.number) : `${S.versions.number(0)} (${T.base})`])];
  const [two, setTwo] = useState(false);
  const [keep, setKeep] = useState(false);
  const [chosen, setChosen] = useState(["", ""]);
  const [columns, setColumns] = useState(/** @type {Line[][]} */ ([[], []]));
  const [text, setText] = useState("");
  const session = useRef(newSession());
  const running = useRef(/** @type {AbortController | null} */ (null));
  const input = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const action = useAction();
  useEffect(() => () => running.current?.abort(), []);
  const asked = (two ? [0, 1] : [0]).map((column) => chosen[column] || (column ? `${name}@0` : name));
  const clear = () => {
    running.current?.abort();
    session.current = newSession();
    setColumns([[], []]);
    input.current?.focus();
  };
  const change = (/** @type {number} */ column, /** @type {(lines: Line[]) => Line[]} */ to) =>
    setColumns((before) => before.map((lines, place) => (place === column ? to(lines) : lines)));
  const send = () => {
    const said = text.trim();
    if (!said || action.busy) return;
    setText("");
    const controller = new AbortController();
    running.current = controller;
    void action.run(async () => {
      const results = await Promise.allSettled(asked.map((model, column) => answer(model, column, said, controller.signal)));
      const failed = results.find((one) => one.status === "rejected");
      if (failed) throw failed.reason;
    });
  };
  const answer = async (/** @type {string} */ model, /** @type {number} */ column, /** @type {string} */ said, /** @type {AbortSignal} */ signal) => {
    const before = [...(columns[column] ?? []), /** @type {Line} */ ({ role: "user", content: said, id: "" })];
    const show = (/** @type {Partial<Line>} */ now) => change(column, () => [...before, { role: "assistant", content: "", id: "", ...now }]);
    const messages = before.map(({ role, content }) => ({ role, content }));
    let content = "";
    show({});
    const onText = (/** @type {string} */ piece) => show({ content: (content += piece) });
    try {
      const id = await chat({ model, messages, signal, onText, ...(keep ? { session: `${session.current}-${column + 1}` } : {}) });
      show({ content, id });
    } catch (error) {
      show({ content, stopped: true });
      if (!signal.aborted) throw error;
    }
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const begun = columns.some((lines) => lines.length);
  return html`<${Title} text=${T.title}>
      ${begun ? html`<${Button} label=${T.clear} onClick=${clear} />` : null}
    <//>
    <div class="filters">
      ${asked.map((model, column) => html`<${Choice} label=${T.who(column + 1)} value=${model} options=${models}
        onChange=${(/** @type {string} */ value) => setChosen((before) => before.map((one, place) => (place === column ? value : one)))} />`)}
      <${Check} label=${T.columns} checked=${two} onChange=${setTwo} />
      <${Check} label=${T.keep} checked=${keep} onChange=${(/** @type {boolean} */ on) => { setKeep(on); clear(); }} />
    </div>
    <p class="meta">${keep ? T.kept : T.notKept}</p>
    <div class=${two ? "pair" : ""} role="log" aria-live="polite" aria-busy=${String(action.busy)}>
      ${asked.map((model, column) => html`<div class="column">
        ${(columns[column] ?? []).map((line) => html`<${Bubble} line=${line} model=${model} keep=${keep} />`)}
      </div>`)}
    </div>
    <form class="compose" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}>
      <textarea ref=${input} rows="2" aria-label=${T.message} placeholder=${T.message} value=${text} onKeyDown=${press}
        onInput=${(/** @type {{ currentTarget: HTMLTextAreaElement }} */ event) => setText(event.currentTarget.value)}></textarea>
      ${action.busy
        ? html`<${Button} icon="stop" label=${T.stop} onClick=${() => running.current?.abort()} />`
        : html`<${Button} primary label=${T.send} onClick=${send} />`}
    </form>
    <p class="meta">${T.hint}</p>
    ${action.failed ? html`<${Said} action=${action} />` : null}`;
}

function newSession() {
  return `dashboard-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
}

/** @param {{ line: Line, model: string, keep: boolean }} props */
function Bubble({ line, model, keep }) {
  const action = useAction();
  if (line.role === "user") return html`<div class="bubble person"><p class="who">${S.turn.you}</p><${Words} text=${line.content} /></div>`;
  const give = (/** @type {string} */ thumb) =>
    action.run(async () => S.turn.sent((await post("/rl/feedback", { turn_id: line.id, thumb })).score));
  return html`<div class="bubble policy">
    <p class="who">${T.answerOf(model)}</p>
    <${Words} text=${line.content} markdown />${line.stopped ? html`<p class="meta">${T.stopped}</p>` : null}
    ${keep && line.id
      ? html`<div class="row">
          <${Button} bare icon="up" label=${S.turn.good} onClick=${() => give("up")} disabled=${action.busy} />
          <${Button} bare icon="down" label=${S.turn.bad} onClick=${() => give("down")} disabled=${action.busy} />
          <${Said} action=${action} />
        </div>`
      : null}
  </div>`;
}
