/** Compare: two versions answer the same prompts, and their answers stand side by side. */

import { useEffect, useRef, useState } from "preact/hooks";
import { chat } from "../api.js";
import { difference } from "../diff.js";
import { plain } from "../format.js";
import { html } from "../html.js";
import { useAction, useData } from "../live.js";
import { S } from "../strings.js";
import { Awaited, Button, Choice, Said, Title } from "../ui.js";

const T = S.compare;

/** @typedef {{ prompt: string, left: string, right: string, done: boolean }} Compared */

/** @param {{ place: import("../router.js").Place }} props */
export function Compare({ place }) {
  const versions = useData("/rl/versions", { kinds: ["version"] });
  const status = useData("/rl/status");
  const rows = (versions.data?.versions ?? []).filter((/** @type {any} */ one) => one.available !== false && one.state !== "rejected");
  const live = rows.find((/** @type {any} */ one) => one.state === "live")?.number ?? 0;
  const [left, setLeft] = useState(place.query["left"] ?? "0");
  const [right, setRight] = useState(place.query["right"] ?? "");
  const [prompts, setPrompts] = useState(T.example);
  const [found, setFound] = useState(/** @type {Compared[]} */ ([]));
  const running = useRef(/** @type {AbortController | null} */ (null));
  const action = useAction();
  useEffect(() => () => running.current?.abort(), []);
  const name = status.data?.model.name ?? "policy";
  const chosen = [left, right || String(live)];
  const start = () =>
    action.run(async () => {
      const controller = new AbortController();
      running.current = controller;
      setFound([]);
      for (const prompt of prompts.split("\n").map((line) => line.trim()).filter(Boolean)) {
        const texts = await Promise.all(chosen.map((number) => answered(`${name}@${number}`, prompt, controller.signal)));
        if (controller.signal.aborted) return;
        setFound((before) => [...before, { prompt, left: texts[0] ?? "", right: texts[1] ?? "", done: true }]);
      }
    });
  const options = rows.map((/** @type {any} */ one) => [String(one.number), S.versions.number(one.number)]);
  return html`<${Title} text=${T.title} />
    <${Awaited} of=${versions}>
      <div class="filters">
        <${Choice} label=${T.left} value=${chosen[0]} options=${options} onChange=${setLeft} />
        <${Choice} label=${T.right} value=${chosen[1]} options=${options} onChange=${setRight} />
      </div>
      <label class="field wide"><span>${T.prompts}</span>
        <textarea rows="3" value=${prompts} onInput=${(/** @type {{ currentTarget: HTMLTextAreaElement }} */ event) => setPrompts(event.currentTarget.value)}></textarea>
      </label>
      <div class="row">
        ${action.busy
          ? html`<${Button} icon="stop" label=${T.stop} onClick=${() => running.current?.abort()} />`
          : html`<${Button} primary label=${T.run} onClick=${start} />`}
        <span class="meta">${T.kept}</span>
        <${Said} action=${action} />
      </div>
      ${found.map((one) => html`<${Pair} one=${one} left=${Number(chosen[0])} right=${Number(chosen[1])} />`)}
    <//>`;
}

/**
 * @param {string} model
 * @param {string} prompt
 * @param {AbortSignal} signal
 */
async function answered(model, prompt, signal) {
  let text = "";
  const onText = (/** @type {string} */ piece) => (text += piece);
  try {
    await chat({ model, messages: [{ role: "user", content: prompt }], signal, onText });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  return plain(text);
}

/** @param {{ one: Compared, left: number, right: number }} props */
function Pair({ one, left, right }) {
  const pieces = difference(one.left, one.right);
  const side = (/** @type {"left" | "right"} */ kind, /** @type {number} */ number) => html`<div class="bubble policy">
    <p class="who">${S.versions.number(number)}</p>
    <p class="pre" dir="auto">${pieces.filter((piece) => piece.kind === "same" || piece.kind === kind).map((piece) =>
      piece.kind === "same" ? piece.text : html`<mark class=${kind} title=${T.only(number)}>${piece.text}</mark>`)}</p>
  </div>`;
  return html`<section class="card"><p class="who" dir="auto">${one.prompt}</p>
    ${one.left === one.right ? html`<p class="meta">${T.same}</p>` : null}
    <div class="pair">${side("left", left)}${side("right", right)}</div>
  </section>`;
}
