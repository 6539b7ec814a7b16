/** Conversations: a list with search, and one of them. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { get } from "../api.js";
import { plain } from "../format.js";
import { html } from "../html.js";
import { useHappenings, useNow } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { Badge, Button, Check, Choice, Field, Time, Title } from "../ui.js";
import { Conversation } from "./conversation.js";

const T = S.conversations;
const PAGE = 50;

/** @param {{ place: import("../router.js").Place, go: (address: string) => void }} props */
export function Conversations({ place, go }) {
  const turn = place.query["turn"] ?? "";
  const [found, setFound] = useState({ turn: "", session: "" });
  useEffect(() => {
    if (place.id || !turn) return;
    get(`/rl/turns/${encodeURIComponent(turn)}`).then(
      (known) => setFound({ turn, session: known.turn.session_id }),
      () => setFound({ turn: "", session: "" }),
    );
  }, [place.id, turn]);
  const session = place.id || (found.turn === turn ? found.session : "");
  return session ? html`<${Conversation} key=${session} session=${session} turn=${turn} />` : html`<${List} query=${place.query} go=${go} />`;
}

/**
 * The items of a list in pages: the first ones are read again as things happen.
 *
 * @param {string} query the filters, as a query string
 */
export function useSessions(query) {
  const [state, setState] = useState(/** @type {{ query: string, items: any[], total: number, next: string | null, error: string }} */ (
    { query, items: [], total: -1, next: null, error: "" }
  ));
  const read = useCallback(async () => {
    const path = `/rl/sessions?${query}${query ? "&" : ""}limit=${PAGE}`;
    try {
      const page = await get(path);
      setState((before) => {
        const more = before.query === query ? before.items.slice(PAGE) : [];
        const known = new Set(page.items.map((/** @type {any} */ one) => one.session_id));
        const items = [...page.items, ...more.filter((/** @type {any} */ one) => !known.has(one.session_id))];
        return { query, items, total: page.total, next: more.length ? before.next : page.next, error: "" };
      });
    } catch (error) {
      setState((before) => ({ ...before, error: error instanceof Error ? error.message || S.away : "" }));
    }
  }, [query]);
  useEffect(() => void read(), [read]);
  useHappenings(["turn", "feedback", "judged", "control"], read);
  const further = async () => {
    const page = await get(`/rl/sessions?${query}${query ? "&" : ""}limit=${PAGE}&after=${encodeURIComponent(state.next ?? "")}`);
    setState((before) => ({ ...before, items: [...before.items, ...page.items], next: page.next }));
  };
  return { ...state, further };
}

/** @param {{ query: Record<string, string>, go: (address: string) => void }} props */
function List({ query, go }) {
  const now = useNow();
  const filters = ["query", "state", "source", "day", "review"].filter((name) => query[name]);
  const asked = new URLSearchParams(filters.map((name) => [name, query[name] ?? ""])).toString();
  const sessions = useSessions(asked);
  const change = (/** @type {string} */ name) => (/** @type {string} */ value) =>
    go(address("conversations", "", { ...Object.fromEntries(filters.map((one) => [one, query[one]])), [name]: value }));
  const sources = [...new Set(sessions.items.map((one) => one.source).filter(Boolean)), ...(query["source"] ? [query["source"]] : [])];
  return html`<${Title} text=${S.screens["conversations"]}>
      <a class="button" href=${address("review")}>${T.queue}</a>
    <//>
    <form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${Field} type="search" label=${T.search} value=${query["query"] ?? ""} onInput=${change("query")} />
      <${Choice} label=${T.state} value=${query["state"] ?? ""} onChange=${change("state")} options=${[["", T.any], ...Object.entries(T.states)]} />
      <${Choice} label=${T.source} value=${query["source"] ?? ""} onChange=${change("source")} options=${[["", T.any], ...[...new Set(sources)].map((one) => [one, one])]} />
      <${Field} type="date" label=${T.day} value=${query["day"] ?? ""} onInput=${change("day")} />
      <${Check} label=${T.review} checked=${query["review"] === "1"} onChange=${(/** @type {boolean} */ on) => change("review")(on ? "1" : "")} />
    </form>
    <p class="meta" role="status">${sessions.error || (sessions.total < 0 ? S.loading : sessions.total ? T.found(sessions.total) : T.none)}</p>
    <ul class="list" role="list">
      ${sessions.items.map((one) => html`<li key=${one.session_id}>
        <a href=${address("conversations", one.session_id)}>
          <span class="name" dir="auto">${plain(one.title) || T.untitled}</span>
          <span class="meta">
            <${Time} time=${one.last} now=${now} /> · ${T.turns(one.turns)}${one.source ? html` · ${plain(one.source)}` : null}
            ${one.state === "open" ? null : html` · ${T.states[one.state] ?? one.state}`}
          </span>
          ${one.needs_review ? html`<${Badge} text=${T.toReview(one.needs_review)} kind="warn" />` : null}
        </a>
      </li>`)}
    </ul>
    ${sessions.next ? html`<${Button} label=${S.more(sessions.items.length, sessions.total)} onClick=${sessions.further} />` : null}`;
}
