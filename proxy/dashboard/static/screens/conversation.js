/** One conversation, turn by turn. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { html } from "../html.js";
import { useHappenings } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { branches, merged } from "../transcript.js";
import { Button, Title } from "../ui.js";
import { TurnCard } from "./turn.js";

const PAGE = 40;
/** Pages that are read on the way to a turn that the address names. */
const MOST_PAGES = 100;

/**
 * The turns of a session, in pages; the page that something happened in is read again.
 *
 * @param {string} session
 * @param {string} wanted read on until this turn, "" for the first page alone
 */
export function useTranscript(session, wanted = "") {
  const path = `/rl/sessions/${encodeURIComponent(session)}/transcript?limit=${PAGE}`;
  const [state, setState] = useState({ items: /** @type {import("../transcript.js").Item[]} */ ([]), total: -1, error: "" });
  const starts = useRef(/** @type {string[]} */ ([""]));
  const next = useRef(/** @type {string | null} */ (null));
  const owner = useRef(/** @type {Map<string, string>} */ (new Map()));
  const read = useCallback(async (/** @type {string} */ after) => {
    try {
      const page = await get(after ? `${path}&after=${encodeURIComponent(after)}` : path);
      for (const item of page.items) owner.current.set(item.turn_id, after);
      if (after === starts.current[starts.current.length - 1]) next.current = page.next;
      setState((before) => ({ items: merged(before.items, page.items), total: page.total, error: "" }));
    } catch (error) {
      setState((before) => ({ ...before, error: error instanceof Error ? error.message || S.away : "" }));
    }
  }, [path]);
  const further = useCallback(async () => {
    if (next.current === null) return;
    starts.current.push(next.current);
    await read(next.current);
  }, [read]);
  useEffect(() => {
    void (async () => {
      await read("");
      for (let pages = 1; wanted && !owner.current.has(wanted) && next.current !== null && pages < MOST_PAGES; pages += 1) await further();
    })();
  }, [read, further, wanted]);
  const renew = useCallback((/** @type {import("../api.js").Happening[]} */ happenings) => {
    const pages = new Set();
    for (const { kind, turn_id: turn, session_id: of } of happenings) {
      if (kind === "again" || kind === "version") for (const start of starts.current) pages.add(start);
      else if (turn && owner.current.has(turn)) pages.add(owner.current.get(turn));
      else if (of === session) pages.add(starts.current[starts.current.length - 1]);
    }
    for (const start of pages) void read(/** @type {string} */ (start));
  }, [read, session]);
  useHappenings(["turn", "settled", "judged", "feedback", "ready", "version"], renew);
  const renewTurn = useCallback((/** @type {string} */ turn) => void read(owner.current.get(turn) ?? ""), [read]);
  return { ...state, more: next.current !== null, further, renewTurn };
}

/** @param {{ session: string, turn: string }} props */
export function Conversation({ session, turn }) {
  const { items, total, error, more, further, renewTurn } = useTranscript(session, turn);
  const scrolled = useRef(false);
  useEffect(() => {
    const target = turn && !scrolled.current ? document.getElementById(turn) : null;
    if (!target) return;
    scrolled.current = true;
    target.scrollIntoView({ block: "center" });
    target.focus({ preventScroll: true });
  });
  const first = items[0]?.new_messages.find((one) => one.role === "user" && !one.folded)?.text ?? "";
  const title = first.replace(/\s+/g, " ").slice(0, 60) || S.conversations.untitled;
  return html`<p><a href=${address("conversations")}>${S.conversations.all}</a></p>
    <${Title} text=${title} />
    <p class="meta" role="status">${error || (total < 0 ? S.loading : S.conversations.turns(total))}</p>
    <ol class="transcript" role="list">
      ${branches(items).map(({ item, earlier }) => html`<li key=${item.turn_id}>
        <${TurnCard} item=${item} marked=${item.turn_id === turn} renew=${renewTurn} />
        ${earlier.length
          ? html`<details class="earlier"><summary>${S.turn.again(earlier.length)}</summary>
              ${earlier.map((one) => html`<${TurnCard} key=${one.turn_id} item=${one} renew=${renewTurn} />`)}
            </details>`
          : null}
      </li>`)}
    </ol>
    ${more ? html`<${Button} label=${S.more(items.length, total)} onClick=${further} />` : null}`;
}
