/** One version: what made it, what the guard measured, and how to make it live. */

import { useState } from "preact/hooks";
import { post } from "../api.js";
import { exactTime, figure, plain, signed } from "../format.js";
import { checksOf, guardWord } from "../guard.js";
import { html } from "../html.js";
import { useAction, useData } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { Awaited, Badge, Button, Card, Check, Dialog, Said, Score, Table, Title } from "../ui.js";
import { State } from "./versions.js";

const T = S.versions;

/** @param {{ number: number, versions: import("../live.js").Loaded<any> }} props */
export function Version({ number, versions }) {
  const known = useData(`/rl/versions/${number}`, { kinds: ["version"] });
  const rows = versions.data?.versions ?? [];
  const version = rows.find((/** @type {any} */ one) => one.number === number);
  const parent = rows.find((/** @type {any} */ one) => one.number === version?.parent);
  const live = rows.find((/** @type {any} */ one) => one.state === "live");
  return html`<p><a href=${address("versions")}>${T.all}</a></p>
    <${Title} text=${T.number(number)}>${version ? html`<${State} version=${version} />` : null}<//>
    <${Awaited} of=${versions}>
      ${version
        ? html`<p class="meta">${T.of(version.parent)} ${exactTime(version.time)} ${plain(version.method)}</p>
            <${Word} version=${version} />
            <${Switch} version=${version} live=${live?.number ?? null} reload=${versions.reload} />
            <${Lessons} known=${known} />
            <${Guard} version=${version} />
            <${Figures} version=${version} parent=${parent} />`
        : html`<p class="note">${T.missing(number)}</p>`}
    <//>`;
}

/** @param {{ version: any }} props */
function Word({ version }) {
  const word = guardWord(version);
  if (!word) return html`<p class="lead">${T.base}.</p>`;
  const words = plain(word.words);
  return html`<p class="lead">${word.passed ? `${T.passed}${words ? `, ${words}` : ""}.` : T.rejected(words || T.noReason)}</p>`;
}

/** @param {{ version: any, live: number | null, reload: () => void }} props */
function Switch({ version, live, reload }) {
  const [asked, setAsked] = useState(false);
  const [release, setRelease] = useState(false);
  const [pin, setPin] = useState(false);
  const action = useAction();
  const promote = () => {
    setAsked(false);
    return action.run(async () => {
      const chosen = new URLSearchParams({ ...(release ? { release: "true" } : {}), ...(pin ? { pin: "true" } : {}) });
      const answer = await post(`/rl/versions/${version.number}/promote?${chosen}`);
      reload();
      return T.done(answer.live, answer.before ?? null);
    });
  };
  const possible = version.available && version.state !== "live" && version.state !== "rejected";
  return html`<div class="row">
      ${possible ? html`<${Button} primary icon="undo" label=${T.live} onClick=${() => setAsked(true)} disabled=${action.busy} />` : null}
      <a class="button" href=${address("compare", "", { left: version.parent ?? 0, right: version.number })}>${T.compare}</a>
      <${Said} action=${action} />
    </div>
    ${asked
      ? html`<${Dialog} title=${T.makeLive(version.number)} confirm=${T.live} onConfirm=${promote} onClose=${() => setAsked(false)}>
          <p>${T.willHappen(version.number, live)}</p>
          <${Check} label=${T.release} checked=${release} onChange=${setRelease} />
          <${Check} label=${T.pin} checked=${pin} onChange=${setPin} />
        <//>`
      : null}`;
}

/** @param {{ known: import("../live.js").Loaded<any> }} props */
function Lessons({ known }) {
  const lessons = known.data?.lessons ?? [];
  const terms = (/** @type {Record<string, number>} */ of) => Object.entries(of ?? {}).map(([name, value]) => `${name} ${figure(value)}`).join(", ");
  return html`<${Card} title=${T.lessons}>
    <${Awaited} of=${known}>
      ${lessons.length
        ? html`<${Table} label=${T.lessons} columns=${T.columns} numbers=${[3, 4]} rows=${lessons.map((/** @type {any} */ one) => [
            html`<a dir="auto" href=${address("conversations", one.session_id, { turn: one.turn_id })}>“${plain(one.words)}”</a>`,
            typeof one.verdict === "number" || one.verdict === null ? html`<${Score} score=${one.verdict} />` : plain(one.verdict),
            plain(one.hint ?? "") || "–",
            figure(one.weight),
            signed(one.advantage),
            terms(one.terms) || "–",
          ])} />`
        : html`<p class="note">${T.noLessons}</p>`}
      ${known.data?.rehearsals || known.data?.anchors ? html`<p class="meta">${T.rehearsed(known.data.rehearsals, known.data.anchors)}</p>` : null}
    <//>
  <//>`;
}

/** @param {{ version: any }} props */
function Guard({ version }) {
  const checks = checksOf(version.guard ?? {});
  return html`<${Card} title=${T.guard}>
    ${checks.length
      ? html`<${Table} label=${T.guard} columns=${T.guardColumns} numbers=${[1, 2]} rows=${checks.map((one) => [
          one.name,
          html`<span title=${String(one.value)}>${figure(one.value)}</span>`,
          figure(one.limit),
          html`<${Badge} text=${one.beyond ? T.beyond : T.within} kind=${one.beyond ? "bad" : "good"} />`,
        ])} />`
      : html`<p class="note">${T.noGuard}</p>`}
  <//>`;
}

/** @param {{ version: any, parent: any }} props */
function Figures({ version, parent }) {
  const names = Object.keys(version.metrics ?? {}).sort();
  if (!names.length) return null;
  return html`<details class="card"><summary>${T.figures}</summary>
    <${Table} label=${T.figures} columns=${T.figureColumns} numbers=${[1, 2]} rows=${names.map((name) => [
      name,
      html`<span title=${String(version.metrics[name])}>${figure(version.metrics[name])}</span>`,
      figure(parent?.metrics?.[name]),
    ])} />
  </details>`;
}
