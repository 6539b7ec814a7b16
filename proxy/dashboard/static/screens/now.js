/** Now: who answers, what is learned, what was taught, and how to take it back. */

import { useState } from "preact/hooks";
import { post, remove } from "../api.js";
import { figure, plain, share } from "../format.js";
import { guardWord } from "../guard.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { useAction, useData, useNow } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { Awaited, Badge, Button, Card, Dialog, Said, Time, Title } from "../ui.js";

const T = S.now;
const KINDS = ["turn", "settled", "judged", "feedback", "ready", "step", "version", "control"];

export function Now() {
  const status = useData("/rl/status", { kinds: KINDS, every: 5000 });
  const versions = useData("/rl/versions", { kinds: ["version", "control"] });
  return html`<${Awaited} of=${status}>
    <${Headline} status=${status.data} reload=${status.reload} />
    <div class="columns">
      <div>
        <${Taught} />
      </div>
      <div>
        <${Newest} versions=${versions} />
        <${Complaints} />
        <${Health} status=${status.data} />
      </div>
    </div>
  <//>`;
}

/** @param {any} status */
export function headline(status) {
  if (!status.ready) return T.silent;
  return T.answers(status.model.name, status.version.live);
}

/** @param {{ status: any, reload: () => void }} props */
function Headline({ status, reload }) {
  const action = useAction();
  const paused = status.training === "paused";
  const change = () =>
    action.run(async () => {
      await post(paused ? "/rl/resume" : "/rl/pause");
      reload();
      return paused ? T.resumedNow : T.pausedNow;
    });
  const state = paused ? T.paused : status.training === "off" ? T.off : "";
  const ready = status.backlog.ready;
  return html`<div class="hero">
    <${Title} text=${headline(status)} />
    <p class="lead">${state} ${plain(status.waiting_for || status.why_untrained) || (state ? "" : T.nothing)}</p>
    ${status.version.pinned === null ? null : html`<p>${T.pinned(status.version.pinned)}</p>`}
    ${status.batch_size
      ? html`<div class="progress">
          <progress max=${status.batch_size} value=${Math.min(ready, status.batch_size)} aria-label=${T.progress(ready, status.batch_size)}></progress>
          <span>${T.progress(ready, status.batch_size)}</span>
        </div>`
      : null}
    <div class="row">
      ${status.training === "off"
        ? null
        : html`<${Button} icon=${paused ? "play" : "pause"} label=${paused ? T.resume : T.pause} onClick=${change} disabled=${action.busy} />`}
      <${Said} action=${action} />
    </div>
  </div>`;
}

function Taught() {
  const wishes = useData("/rl/wishes", { kinds: ["judged", "feedback", "control"] });
  const action = useAction();
  const now = useNow();
  const forget = (/** @type {any} */ wish) =>
    action.run(async () => {
      await remove(`/rl/wishes/${encodeURIComponent(wish.id)}`);
      wishes.reload();
      document.getElementById("taught")?.focus();
      return T.forgotten(plain(wish.text));
    });
  const items = wishes.data?.items ?? [];
  return html`<section class="card tall" aria-labelledby="taught">
    <header><h2 id="taught" tabindex="-1">${T.taught}</h2></header>
    <${Said} action=${action} />
    <${Awaited} of=${wishes}>
      ${items.length ? null : html`<p class="note">${T.taughtNothing}</p>`}
      <ul class="wishes">
        ${items.map((/** @type {any} */ wish) => html`<li key=${wish.id} class=${wish.state}>
          <p class="wish" dir="auto">${plain(wish.text)}</p>
          <p class="meta">
            ${T.heard(wish.count)} · <${Time} time=${wish.last} now=${now} />
            ${wish.state === "standing" ? null : html` · <${Badge} text=${wish.state === "outvoted" ? T.outvoted : T.dropped} />`}
          </p>
          <div class="row">
            <details>
              <summary>${T.from}</summary>
              <ul>${wish.from.map((/** @type {any} */ one) => html`<li dir="auto">
                <a href=${address("conversations", "", { turn: one.turn_id })}>“${plain(one.words)}”</a>
              </li>`)}</ul>
            </details>
            ${wish.state === "dropped" ? null : html`<${Button} quiet icon="trash" label=${T.forget} onClick=${() => forget(wish)} disabled=${action.busy} />`}
          </div>
        </li>`)}
      </ul>
    <//>
  </section>`;
}

/** @param {{ versions: import("../live.js").Loaded<any> }} props */
function Newest({ versions }) {
  const [asked, setAsked] = useState(false);
  const action = useAction();
  const now = useNow();
  const rows = versions.data?.versions ?? [];
  const newest = rows.reduce((/** @type {any} */ best, /** @type {any} */ one) => (!best || one.number > best.number ? one : best), null);
  const undo = () => {
    setAsked(false);
    return action.run(async () => {
      const answer = await post(`/rl/versions/${newest.parent}/promote`);
      versions.reload();
      return S.versions.done(answer.live, answer.before ?? null);
    });
  };
  const word = newest && guardWord(newest);
  const parent = rows.find((/** @type {any} */ one) => one.number === newest?.parent);
  return html`<${Card} title=${T.last}>
    <${Awaited} of=${versions}>
      ${newest
        ? html`<p>
              <a href=${address("versions", String(newest.number))}>${S.versions.number(newest.number)}</a>${" "}
              <${Badge} text=${S.versions.states[newest.state] ?? newest.state} kind=${newest.state === "rejected" ? "bad" : newest.state === "live" ? "good" : "plain"} />${" "}
              <span class="meta"><${Time} time=${newest.time} now=${now} /></span>
            </p>
            <p>${word ? (word.passed ? `${S.versions.passed}${word.words ? `, ${word.words}` : ""}.` : S.versions.rejected(plain(word.words) || S.versions.noReason)) : `${S.versions.base}.`}</p>
            <div class="row">
              ${newest.number ? html`<a class="button quiet" href=${address("versions", String(newest.number))}>${T.see(newest.number)}</a>` : null}
              ${newest.state === "live" && parent?.available
                ? html`<${Button} icon="undo" label=${T.undo(newest.parent)} onClick=${() => setAsked(true)} disabled=${action.busy} />`
                : null}
            </div>`
        : html`<p class="note">${T.noVersion}</p>`}
      <${Said} action=${action} />
    <//>
    ${asked
      ? html`<${Dialog} title=${S.versions.makeLive(newest.parent)} confirm=${S.versions.live} onConfirm=${undo} onClose=${() => setAsked(false)}>
          <p>${S.versions.willHappen(newest.parent, newest.number)}</p>
        <//>`
      : null}
  <//>`;
}

function Complaints() {
  const verdicts = useData("/rl/verdicts?by=version", { kinds: ["judged", "feedback"] });
  const items = (verdicts.data?.items ?? []).slice(-6);
  return html`<${Card} title=${T.complaints}>
    <${Awaited} of=${verdicts}>
      ${items.length ? null : html`<p class="note">${T.noComplaints}</p>`}
      <dl class="bars">
        ${items.map((/** @type {any} */ one) => html`<div key=${one.key} title=${`${T.complaintsOf(one.complaints, one.n)}, mean ${figure(one.mean)}`}>
          <dt>${S.versions.number(one.key)}</dt>
          <dd><meter min="0" max="1" value=${one.n ? one.complaints / one.n : 0} aria-label=${share(one.complaints, one.n)}></meter>
            <span>${T.complaintsOf(one.complaints, one.n)}</span></dd>
        </div>`)}
      </dl>
    <//>
  <//>`;
}

/**
 * The parts of the service with a sentence each.
 *
 * @param {any} status
 * @returns {{ well: boolean, words: string }[]}
 */
export function healthOf(status) {
  const learner = status.processes.learner;
  const error = plain(learner?.detail?.last_error ?? "");
  const away = learner && !learner.alive;
  return [
    { well: status.engine === "ok", words: status.engine === "ok" ? T.engine : T.engineAway(plain(status.engine)) },
    status.capture
      ? { well: status.journal === "ok", words: status.journal === "ok" ? T.journal : T.journalAway(plain(status.journal)) }
      : { well: true, words: T.captureOff },
    ...(status.training === "off" ? [] : [{ well: !away && !error, words: away ? T.learnerAway : error ? T.learnerError(error) : T.learner }]),
    ...(status.trouble ? [{ well: false, words: plain(status.trouble) }] : []),
  ];
}

/** @param {{ status: any }} props */
function Health({ status }) {
  const parts = healthOf(status);
  return html`<${Card} title=${T.health}>
    <ul class="health" role="list">
      ${parts.map(({ well, words }) => html`<li class=${well ? "good" : "bad"}><${Icon} name=${well ? "check" : "alert"} /><span>${words}</span></li>`)}
    </ul>
  <//>`;
}
