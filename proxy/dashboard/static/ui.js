/** The small parts that all screens are made of. */

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ago, clipped, exactTime, plain, signed, tone } from "./format.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { parseMarkdown } from "./markdown.js";
import { S } from "./strings.js";

/** Longer texts are cut until a person asks for the rest: one of a megabyte would hold up the page. */
const SHOWN = 6000;

/** @typedef {import("preact").ComponentChildren} Children */

/**
 * A button; `icon` and `label` name it, `quiet` and `danger` are its looks.
 *
 * @param {{ icon?: string, label: string, onClick: () => void, quiet?: boolean, danger?: boolean, primary?: boolean,
 *   disabled?: boolean, pressed?: boolean, bare?: boolean }} props
 */
export function Button({ icon, label, onClick, quiet, danger, primary, disabled, pressed, bare }) {
  const look = `button${quiet ? " quiet" : ""}${danger ? " danger" : ""}${primary ? " primary" : ""}`;
  return html`<button
    type="button"
    class=${look}
    aria-label=${bare ? label : undefined}
    title=${bare ? label : undefined}
    aria-pressed=${pressed === undefined ? undefined : String(pressed)}
    aria-disabled=${disabled ? "true" : undefined}
    onClick=${() => disabled || onClick()}
  >
    ${icon ? html`<${Icon} name=${icon} />` : null}${bare ? null : html`<span>${label}</span>`}
  </button>`;
}

/** @param {{ title?: string, id?: string, children?: Children, aside?: Children }} props */
export function Card({ title, children, aside }) {
  const id = useId();
  return html`<section class="card" aria-labelledby=${title ? id : undefined}>
    ${title ? html`<header><h2 id=${id}>${title}</h2>${aside}</header>` : null}${children}
  </section>`;
}

/** @param {{ time: number | null | undefined, now: number }} props */
export function Time({ time, now }) {
  if (time === null || time === undefined) return null;
  return html`<time dateTime=${new Date(time * 1000).toISOString()} title=${exactTime(time)}>${ago(time, now)}</time>`;
}

/** @param {{ text: string, kind?: string, title?: string }} props */
export function Badge({ text, kind = "plain", title }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${text}</span>`;
}

/** @param {{ score: number | null | undefined }} props */
export function Score({ score }) {
  return html`<${Badge} text=${signed(score)} kind=${tone(score)} />`;
}

/**
 * What stands where an answer of the service is awaited, has failed, or is empty.
 *
 * @param {{ of: import("./live.js").Loaded<any>, children?: Children }} props
 */
export function Awaited({ of, children }) {
  if (of.data) return children;
  if (of.error) return html`<p class="note bad" role="alert">${of.error.message || S.away}</p>`;
  return html`<p class="note" aria-busy="true">${S.loading}</p>`;
}

/** @param {{ action: { said: string, failed: boolean, busy: boolean } }} props */
export function Said({ action }) {
  const look = action.failed ? "said bad" : "said";
  return html`<p class=${look} role="status">${action.busy ? S.working : action.failed ? action.said || S.away : action.said}</p>`;
}

/**
 * A text of a person, a model or a tool as plain words, cut where it is very long.
 *
 * @param {{ text: string, markdown?: boolean }} props
 */
export function Words({ text, markdown }) {
  const [most, setMost] = useState(SHOWN);
  const { text: shown, more } = clipped(plain(text), most);
  return html`<div class="words" dir="auto">
    ${markdown ? html`<${Markdown} text=${shown} />` : html`<p class="pre">${shown}</p>`}
    ${more ? html`<${Button} quiet label=${S.moreText(more)} onClick=${() => setMost(most * 10)} />` : null}
  </div>`;
}

/** @param {{ text: string }} props */
function Markdown({ text }) {
  return html`${parseMarkdown(text).map(block)}`;
}

/** @param {import("./markdown.js").Block} found @returns {unknown} */
function block(found) {
  switch (found.kind) {
    case "heading":
      return html`<p class="heading"><strong>${(found.spans ?? []).map(span)}</strong></p>`;
    case "code":
      return html`<pre tabindex="0"><code>${found.text}</code></pre>`;
    case "quote":
      return html`<blockquote>${(found.blocks ?? []).map(block)}</blockquote>`;
    case "rule":
      return html`<hr />`;
    case "list": {
      const items = (found.items ?? []).map((item) => html`<li>${item.map(span)}</li>`);
      return found.ordered ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    default:
      return html`<p class="pre">${(found.spans ?? []).map(span)}</p>`;
  }
}

/** @param {import("./markdown.js").Span} found @returns {unknown} */
function span(found) {
  if (found.kind === "code") return html`<code>${found.text}</code>`;
  if (found.kind === "strong") return html`<strong>${found.text}</strong>`;
  if (found.kind === "em") return html`<em>${found.text}</em>`;
  if (found.kind !== "link") return found.text;
  const link = html`<a href=${found.address} target="_blank" rel="noreferrer noopener">${found.address}</a>`;
  return found.text === found.address ? link : html`${found.text} (${link})`;
}

/**
 * A question before something happens. The focus is in it while it is open, and returns where it was.
 *
 * @param {{ title: string, children?: Children, confirm: string, danger?: boolean, onConfirm: () => void, onClose: () => void }} props
 */
export function Dialog({ title, children, confirm, danger, onConfirm, onClose }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    box.current?.showModal();
    return () => before?.focus();
  }, []);
  return html`<dialog ref=${box} aria-labelledby=${id} onCancel=${onClose}>
    <h2 id=${id}>${title}</h2>
    ${children}
    <div class="row end">
      <${Button} label=${S.cancel} quiet onClick=${onClose} />
      <${Button} label=${confirm} primary danger=${danger} onClick=${onConfirm} />
    </div>
  </dialog>`;
}

/**
 * A table that scrolls by itself where it is too wide.
 *
 * @param {{ label: string, columns: readonly string[], rows: readonly (readonly unknown[])[], numbers?: readonly number[] }} props
 *   `numbers`: the places of columns of numbers
 */
export function Table({ label, columns, rows, numbers = [] }) {
  const look = (/** @type {number} */ place) => (numbers.includes(place) ? "number" : undefined);
  return html`<div class="table" role="region" tabindex="0" aria-label=${label}>
    <table>
      <thead><tr>${columns.map((name, place) => html`<th scope="col" class=${look(place)}>${name}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell, place) =>
        place ? html`<td class=${look(place)}>${cell}</td>` : html`<th scope="row">${cell}</th>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/**
 * The heading of a screen, which gets the focus when the screen opens.
 *
 * @param {{ text: string, children?: Children }} props
 */
export function Title({ text, children }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    document.title = `${text} · ${S.product}`;
    heading.current?.focus({ preventScroll: true });
  }, [text]);
  return html`<div class="title"><h1 ref=${heading} tabindex="-1">${text}</h1>${children}</div>`;
}

/**
 * @param {{ label: string, value: string, onInput: (value: string) => void, type?: string }} props
 */
export function Field({ label, value, onInput, type = "text" }) {
  const change = (/** @type {{ currentTarget: HTMLInputElement }} */ event) => onInput(event.currentTarget.value);
  return html`<label class="field"><span>${label}</span><input type=${type} value=${value} onInput=${change} /></label>`;
}

/**
 * @param {{ label: string, value: string, options: readonly (readonly [string, string])[], onChange: (value: string) => void }} props
 */
export function Choice({ label, value, options, onChange }) {
  const change = (/** @type {{ currentTarget: HTMLSelectElement }} */ event) => onChange(event.currentTarget.value);
  return html`<label class="field"><span>${label}</span>
    <select value=${value} onChange=${change}>
      ${options.map(([name, text]) => html`<option value=${name} selected=${name === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** @param {{ label: string, checked: boolean, onChange: (checked: boolean) => void }} props */
export function Check({ label, checked, onChange }) {
  const change = (/** @type {{ currentTarget: HTMLInputElement }} */ event) => onChange(event.currentTarget.checked);
  return html`<label class="check"><input type="checkbox" checked=${checked} onChange=${change} /><span>${label}</span></label>`;
}
