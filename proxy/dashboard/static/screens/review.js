/** Review: the answers that nothing has judged, one after the other, by keyboard. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { html } from "../html.js";
import { useAction } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { Said, Title } from "../ui.js";
import { TurnCard } from "./turn.js";

const T = S.review;
const SESSIONS = 20;

/** @typedef {import("../transcript.js").Item & { session: string }} Waiting */

/** @returns {Promise<Waiting[]>} */
async function waiting() {
  const { items: sessions } = await get(`/rl/sessions?review=1&limit=${SESSIONS}`);
  /** @type {Waiting[]} */
  const found = [];
  for (const { session_id: session } of sessions) {
    for (let after = ""; ; ) {
      const page = await get(`/rl/sessions/${encodeURIComponent(session)}/transcript?limit=100${after}`);
      for (const item of page.items) if (item.review) found.push({ ...item, session });
      if (page.next === null) break;
      after = `&after=${encodeURIComponent(page.next)}`;
    }
  }
  return found;
}

export function Review() {
  const [items, setItems] = useState(/** @type {Waiting[] | null} */ (null));
  const [at, setAt] = useState(0);
  const [help, setHelp] = useState(false);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const action = useAction();
  useEffect(() => void action.run(async () => setItems(await waiting())), []);
  const move = (/** @type {number} */ place) => {
    const next = Math.max(0, Math.min(place, (items?.length ?? 1) - 1));
    setAt(next);
    const row = /** @type {HTMLElement | undefined} */ (list.current?.children[next]);
    row?.focus();
    row?.scrollIntoView({ block: "nearest" });
  };
  const judge = (/** @type {"up" | "down"} */ thumb) =>
    action.run(async () => {
      const turn = items?.[at];
      if (!turn) return undefined;
      const answer = await post("/rl/feedback", { turn_id: turn.turn_id, thumb });
      move(at + 1);
      return S.turn.sent(answer.score);
    });
  /** Single keys act only while the focus is on a row, so that they are in no one's way elsewhere. */
  const press = (/** @type {KeyboardEvent} */ event) => {
    const row = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || row.parentElement !== list.current) return;
    const keys = /** @type {Record<string, () => unknown>} */ ({
      j: () => move(at + 1),
      k: () => move(at - 1),
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      1: () => judge("up"),
      2: () => judge("down"),
      "/": () => /** @type {HTMLElement | null} */ (row.querySelector("input[type=text]"))?.focus(),
      "?": () => setHelp(!help),
    });
    const chosen = keys[event.key];
    if (!chosen) return;
    event.preventDefault();
    chosen();
  };
  return html`<p><a href=${address("conversations")}>${S.conversations.all}</a></p>
    <${Title} text=${T.title} />
    <p class="meta">${items === null ? S.loading : items.length ? T.done(items.length) : T.none}</p>
    ${items?.length ? html`<p class=${help ? "note" : "meta"}>${T.keys}</p>` : null}
    <${Said} action=${action} />
    <ol class="transcript" role="list" ref=${list} aria-label=${T.list} onKeyDown=${press}>
      ${(items ?? []).map((item, place) => html`<li key=${item.turn_id} class="queued" tabindex=${place === at ? 0 : -1} onFocusIn=${() => setAt(place)}>
        <${TurnCard} item=${item} renew=${() => undefined} />
        <p><a href=${address("conversations", item.session, { turn: item.turn_id })}>${T.open}</a></p>
      </li>`)}
    </ol>`;
}
