/** Privacy: what is kept, how to take it away, how to have it forgotten. */

import { useState } from "preact/hooks";
import { get, post, remove, send } from "../api.js";
import { exactTime, figure, plain, size } from "../format.js";
import { html } from "../html.js";
import { useAction, useData, useNow } from "../live.js";
import { save } from "../save.js";
import { S } from "../strings.js";
import { OPERATOR } from "../strings_operator.js";
import { Awaited, Button, Card, Dialog, Field, Said, Table, Time, Title } from "../ui.js";
import { useSessions } from "./conversations.js";

const T = OPERATOR.privacy;
const DAY = 86400;

export function Privacy() {
  const data = useData("/rl/data", { kinds: ["control"] });
  return html`<${Title} text=${T.title} />
    <${Kept} data=${data} />
    <${ForgetOne} reload=${data.reload} />
    <${ForgetOld} reload=${data.reload} />`;
}

/** @param {{ data: import("../live.js").Loaded<any> }} props */
function Kept({ data }) {
  const { bytes = 0, parts = {}, counts = {}, oldest = null, keep_days: days } = data.data ?? {};
  return html`<${Card} title=${T.kept}>
    <${Awaited} of=${data}>
      <p class="lead">${T.total(size(bytes))}</p>
      <p class="meta">${oldest === null ? T.nothing : T.oldest(exactTime(oldest))} ${days ? T.days(days) : ""}</p>
      <div class="pair">
        <${Table} label=${T.kept} columns=${T.partColumns} numbers=${[1]} rows=${Object.entries(parts).map(([name, of]) => [name, html`<span title=${`${of} bytes`}>${size(of)}</span>`])} />
        <${Table} label=${T.kept} columns=${T.countColumns} numbers=${[1]} rows=${Object.entries(counts).map(([name, of]) => [name.replaceAll("_", " "), figure(of)])} />
      </div>
    <//>
  <//>`;
}

/** @param {{ reload: () => void }} props */
function ForgetOne({ reload }) {
  const [query, setQuery] = useState("");
  const [asked, setAsked] = useState(/** @type {{ session: any, turns: number, versions: number[] } | null} */ (null));
  const [gone, setGone] = useState(/** @type {string[]} */ ([]));
  const sessions = useSessions(query ? new URLSearchParams({ query }).toString() : "");
  const action = useAction();
  const now = useNow();
  const path = (/** @type {any} */ session) => `/rl/sessions/${encodeURIComponent(session.session_id)}`;
  const ask = (/** @type {any} */ session) =>
    action.run(async () => setAsked({ session, ...(await get(`${path(session)}/consequences`)) }));
  const forget = () =>
    action.run(async () => {
      if (!asked) return undefined;
      await remove(path(asked.session));
      setAsked(null);
      setGone((before) => [...before, asked.session.session_id]);
      document.getElementById("forget")?.focus();
      reload();
      return T.forgot(asked.turns);
    });
  const download = (/** @type {any} */ session) =>
    action.run(async () => save(`${session.session_id}.jsonl`, "application/jsonl", await (await send("GET", `${path(session)}/export`)).blob()));
  const shown = sessions.items.filter((one) => !gone.includes(one.session_id)).slice(0, 20);
  return html`<section class="card" aria-labelledby="forget">
    <header><h2 id="forget" tabindex="-1">${T.forget}</h2></header>
    <${Field} type="search" label=${T.find} value=${query} onInput=${setQuery} />
    <${Said} action=${action} />
    ${sessions.total === 0 ? html`<p class="note">${T.none}</p>` : null}
    <ul class="list" role="list">
      ${shown.map((one) => html`<li key=${one.session_id} class="row between">
        <span><span class="name" dir="auto">${plain(one.title) || S.conversations.untitled}</span> <span class="meta"><${Time} time=${one.last} now=${now} /> · ${S.conversations.turns(one.turns)}</span></span>
        <span class="row">
          <${Button} bare icon="download" label=${T.downloadOf(plain(one.title))} onClick=${() => download(one)} disabled=${action.busy} />
          <${Button} quiet icon="trash" label=${T.look} onClick=${() => ask(one)} disabled=${action.busy} />
        </span>
      </li>`)}
    </ul>
    ${asked
      ? html`<${Dialog} danger title=${T.question} confirm=${T.sure} onConfirm=${forget} onClose=${() => setAsked(null)}>
          <p dir="auto">“${plain(asked.session.title)}”</p>
          <p>${T.consequences(asked.turns, asked.versions)}</p>
        <//>`
      : null}
  </section>`;
}

/** @param {{ reload: () => void }} props */
function ForgetOld({ reload }) {
  const [days, setDays] = useState("90");
  const [asked, setAsked] = useState(/** @type {{ before: number, turns: number, versions: number[] } | null} */ (null));
  const action = useAction();
  const look = () =>
    action.run(async () => {
      const before = Date.now() / 1000 - Math.max(0, Number(days) || 0) * DAY;
      setAsked({ before, ...(await post("/rl/forget", { before, preview: true })) });
    });
  const forget = () =>
    action.run(async () => {
      if (!asked) return undefined;
      setAsked(null);
      let turns = 0;
      for (let left = 1; left > 0; ) {
        const done = await post("/rl/forget", { before: asked.before });
        turns += done.turns;
        left = done.turns ? done.left : 0;
      }
      reload();
      return T.forgot(turns);
    });
  return html`<${Card} title=${T.forgetOldTitle}>
    <div class="row">
      <${Field} type="number" label=${T.forgetOld} value=${days} onInput=${setDays} />
      <${Button} icon="trash" label=${T.look} onClick=${look} disabled=${action.busy} />
    </div>
    <${Said} action=${action} />
    ${asked
      ? html`<${Dialog} danger title=${T.questionOld} confirm=${T.sure} onConfirm=${forget} onClose=${() => setAsked(null)}>
          <p>${T.consequences(asked.turns, asked.versions)}</p>
        <//>`
      : null}
  <//>`;
}
