/** System: settings and checks, processes, logs, limits, and what leaves the machine. */

import { useState } from "preact/hooks";
import { figure, plain } from "../format.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { useAction, useData, useNow } from "../live.js";
import { OPERATOR } from "../strings_operator.js";
import { setStays, stays } from "../token.js";
import { Awaited, Badge, Button, Card, Check, Choice, Field, Said, Table, Time, Title } from "../ui.js";

const T = OPERATOR.system;
const LINES = 200;

export function System() {
  const status = useData("/rl/status", { every: 5000, kinds: ["control", "version"] });
  const settings = useData("/rl/settings");
  const [stay, setStay] = useState(stays());
  const change = (/** @type {boolean} */ on) => {
    setStays(on);
    setStay(on);
  };
  return html`<${Title} text=${T.title} />
    <${Leaves} settings=${settings} />
    <${Checks} settings=${settings} />
    <${Processes} status=${status} />
    <${Limits} status=${status} settings=${settings} />
    <${Settings} settings=${settings} />
    <${Logs} />
    <${Entry} status=${status} />
    <${Check} label=${T.stay} checked=${stay} onChange=${change} />`;
}

/** @typedef {{ settings: import("../live.js").Loaded<any> }} OfSettings */
/** @typedef {{ status: import("../live.js").Loaded<any> }} OfStatus */

/** @param {OfSettings} props */
function Leaves({ settings }) {
  const leaves = settings.data?.leaves_machine ?? [];
  return html`<${Card} title=${T.leaves}>
    <${Awaited} of=${settings}>
      ${leaves.length ? html`<ul>${leaves.map((/** @type {string} */ line) => html`<li>${plain(line)}</li>`)}</ul>` : html`<p>${T.leavesNothing}</p>`}
    <//>
  <//>`;
}

/** @param {OfSettings} props */
function Checks({ settings }) {
  return html`<${Card} title=${T.checks}>
    <${Awaited} of=${settings}>
      <ul class="health" role="list">
        ${(settings.data?.checks ?? []).map((/** @type {any} */ one) => html`<li class=${one.ok ? "good" : "bad"}>
          <${Icon} name=${one.ok ? "check" : "alert"} /><span><strong>${plain(one.name)}</strong> ${plain(one.detail)}</span>
        </li>`)}
      </ul>
    <//>
  <//>`;
}

/** @param {OfStatus} props */
function Processes({ status }) {
  const processes = Object.entries(status.data?.processes ?? {});
  return html`<${Card} title=${T.processes}>
    <${Awaited} of=${status}>
      <${Table} label=${T.processes} columns=${T.processColumns} numbers=${[2, 3]} rows=${processes.map(([name, row]) => [
        name,
        html`<${Badge} text=${row.alive ? T.alive : T.gone} kind=${row.alive ? "good" : "bad"} />`,
        row.pid ?? "–",
        figure(row.restarts ?? row.detail?.restarts),
        plain([row.detail?.state, row.detail?.detail, row.detail?.last_error || row.detail?.error].filter((one) => typeof one === "string" && one).join(": ")) || "–",
      ])} />
    <//>
  <//>`;
}

/** @param {OfStatus & OfSettings} props */
function Limits({ status, settings }) {
  const now = useNow();
  const limits = status.data?.limits;
  const named = limits
    ? [...limits.keys.map((/** @type {any} */ row, /** @type {number} */ place) => [T.key(place + 1), row]), [T.sessions, limits.sessions], [T.dialects, limits.dialects]]
    : [];
  const rows = named.filter(([, row]) => row).map(([name, row]) => [name, `${figure(row.active)} / ${figure(row.places)}`, figure(row.waiting), figure(row.refused)]);
  const { keys, spending } = settings.data ?? {};
  return html`<${Card} title=${T.limits}>
    <${Awaited} of=${status}>
      ${rows.length ? html`<${Table} label=${T.limits} columns=${T.limitColumns} numbers=${[1, 2, 3]} rows=${rows} />` : html`<p class="note">${T.noLimits}</p>`}
      ${keys?.length
        ? html`<h3>${T.keys}</h3><${Table} label=${T.keys} columns=${T.keyColumns} rows=${keys.map((/** @type {any} */ one) => [
            plain(one.name), (one.scopes ?? []).join(", "), html`<${Time} time=${one.last_used} now=${now} />`])} />`
        : null}
      ${spending ? html`<h3>${T.spending}</h3><p>${plain(spending)}</p>` : null}
    <//>
  <//>`;
}

/** @param {OfSettings} props */
function Settings({ settings }) {
  const [filter, setFilter] = useState("");
  const wanted = filter.trim().toLowerCase();
  const rows = (settings.data?.settings ?? []).filter((/** @type {any} */ one) => `${one.name} ${one.meaning} ${one.source}`.toLowerCase().includes(wanted));
  const value = (/** @type {any} */ one) => (one.secret ? T.masked : typeof one.value === "string" ? one.value : JSON.stringify(one.value));
  return html`<${Card} title=${T.settings}>
    <${Awaited} of=${settings}>
      <${Field} type="search" label=${T.filter} value=${filter} onInput=${setFilter} />
      <${Table} label=${T.settings} columns=${T.settingColumns} rows=${rows.map((/** @type {any} */ one) => [
        html`<code>${one.name}</code>`, html`<code class="wrap">${plain(value(one)) || "–"}</code>`, plain(one.source), plain(one.meaning)])} />
    <//>
  <//>`;
}

function Logs() {
  const [process, setProcess] = useState("proxy");
  const logs = useData(`/rl/logs?process=${process}&limit=${LINES}`, { every: 5000 });
  const options = (logs.data?.processes ?? [process]).map((/** @type {string} */ name) => [name, name]);
  return html`<${Card} title=${T.logs}>
    <${Choice} label=${T.process} value=${process} options=${options} onChange=${setProcess} />
    <${Awaited} of=${logs}><pre class="log" tabindex="0" aria-label=${T.logs}>${plain((logs.data?.lines ?? []).map(lineText).join("\n"))}</pre><//>
  <//>`;
}

/** @param {unknown} line */
function lineText(line) {
  return typeof line === "string" ? line : JSON.stringify(line);
}

/** @param {OfStatus} props */
function Entry({ status }) {
  const action = useAction();
  const { name = "policy", context_length: context } = status.data?.model ?? {};
  const model = { id: name, name: "RL policy", ...(context ? { contextWindow: context } : {}) };
  const provider = { baseUrl: `${location.origin}/v1`, apiKey: "A CLIENT KEY", api: "openai-completions", models: [model] };
  const entry = {
    models: { mode: "merge", providers: { "openclaw-rl": provider } },
    agents: { defaults: { model: { primary: `openclaw-rl/${name}` } } },
  };
  const text = JSON.stringify(entry, null, 2);
  return html`<${Card} title=${T.entry}>
    <p class="meta">${T.entryHow}</p>
    <pre tabindex="0" aria-label=${T.entry}>${text}</pre>
    <div class="row">
      <${Button} label=${T.copy} onClick=${() => action.run(async () => { await navigator.clipboard.writeText(text); return T.copied; })} />
      <${Said} action=${action} />
    </div>
  <//>`;
}
