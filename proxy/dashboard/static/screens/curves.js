/** Curves: the figures of the steps by version, verdicts of people, evaluations. */

import { useMemo, useState } from "preact/hooks";
import { Chart } from "../chart.js";
import { exactTime, figure } from "../format.js";
import { html } from "../html.js";
import { useData } from "../live.js";
import { families, seriesOf, smoothed, toCsv } from "../series.js";
import { save } from "../save.js";
import { S } from "../strings.js";
import { Awaited, Button, Card, Choice, Table, Title } from "../ui.js";

const T = S.curves;
/** A chart shows as many lines at most: no one can tell more of them apart. */
const LINES = 6;

/** @param {{ place: import("../router.js").Place, go: (address: string) => void }} props */
export function Curves({ place }) {
  const versions = useData("/rl/versions", { kinds: ["version"] });
  return html`<${Title} text=${T.title} />
    <${Awaited} of=${versions}><${Steps} versions=${versions.data?.versions ?? []} first=${place.query["family"] ?? ""} /><//>
    <${Verdicts} />
    <${Evaluations} />`;
}

/** @param {{ versions: any[], first: string }} props */
function Steps({ versions, first }) {
  const found = useMemo(() => families(versions), [versions]);
  const names = Object.keys(found);
  const [chosen, setChosen] = useState(first);
  const [amount, setAmount] = useState(0);
  const family = names.includes(chosen) ? chosen : (names.includes("loss") ? "loss" : (names[0] ?? ""));
  const metrics = found[family] ?? [];
  const { x, lines } = useMemo(() => seriesOf(versions, metrics), [versions, family]);
  const charts = useMemo(() => groups(metrics, family).map((group) => Object.fromEntries(group.map((name) => [name, smoothed(lines[name] ?? [], amount)]))), [lines, amount]);
  const rejected = useMemo(() => versions.filter((one) => one.state === "rejected").map((one) => one.number), [versions]);
  if (!names.length) return html`<p class="note">${T.none}</p>`;
  const rows = x.map((number, place) => [number, ...metrics.map((name) => lines[name]?.[place] ?? null)]);
  const slide = (/** @type {{ currentTarget: HTMLInputElement }} */ event) => setAmount(Number(event.currentTarget.value));
  return html`<div class="filters">
      <${Choice} label=${T.family} value=${family} options=${names.map((name) => [name, name])} onChange=${setChosen} />
      <label class="field"><span>${T.smoothing}</span><input type="range" min="0" max="0.95" step="0.05" value=${amount} onInput=${slide} /></label>
      <${Button} icon="download" label=${T.csv} onClick=${() => save(`${family}.csv`, "text/csv", toCsv([[T.version, ...metrics], ...rows]))} />
    </div>
    ${charts.map((group) => html`<${Chart} label=${Object.keys(group).length > 1 ? family : (Object.keys(group)[0] ?? family)} x=${x} lines=${group} rejected=${rejected} unit=${T.version} />`)}
    ${rejected.length ? html`<p class="meta">${T.rejected(rejected)}</p>` : null}
    <details><summary>${T.table}</summary>
      <${Table} label=${family} columns=${[T.version, ...metrics]} numbers=${metrics.map((_, place) => place + 1)} rows=${rows.map(([number, ...values]) => [number, ...values.map((value) => figure(value))])} />
    </details>`;
}

/**
 * The metrics that share a chart: those of a family, a few at a time; the unlike ones of `other` have one each.
 *
 * @param {readonly string[]} metrics
 * @param {string} family
 * @returns {string[][]}
 */
function groups(metrics, family) {
  const size = family === "other" ? 1 : LINES;
  return Array.from({ length: Math.ceil(metrics.length / size) }, (_, place) => metrics.slice(place * size, (place + 1) * size));
}

function Verdicts() {
  const verdicts = useData("/rl/verdicts?by=version", { kinds: ["judged", "feedback"] });
  const items = verdicts.data?.items ?? [];
  return html`<${Card} title=${T.verdicts}>
    <${Awaited} of=${verdicts}>
      ${items.length
        ? html`<${Table} label=${T.verdicts} columns=${T.verdictColumns} numbers=${[1, 2, 3, 4, 5]}
            rows=${items.map((/** @type {any} */ one) => [one.key, figure(one.mean), figure(one.n), figure(one.complaints), figure(one.thumbs_up), figure(one.thumbs_down)])} />`
        : html`<p class="note">${S.now.noComplaints}</p>`}
    <//>
  <//>`;
}

function Evaluations() {
  const evals = useData("/rl/evals", { kinds: ["version"] });
  const items = evals.data?.items ?? [];
  const interval = (/** @type {any} */ of) => (of?.low === undefined || of?.low === null ? "–" : `${figure(of.low)} to ${figure(of.high)}`);
  return html`<${Card} title=${T.evals}>
    <${Awaited} of=${evals}>
      ${items.length
        ? html`<${Table} label=${T.evals} columns=${T.evalColumns} numbers=${[3, 4]} rows=${items.map((/** @type {any} */ one) => [
            exactTime(one.time),
            one.name,
            one.version,
            figure(one.n),
            figure(one.mean),
            interval(one),
            one.control ? `${figure(one.control.mean)} (${interval(one.control)})` : "–",
          ])} />`
        : html`<p class="note">${T.noEvals}</p>`}
    <//>
  <//>`;
}
