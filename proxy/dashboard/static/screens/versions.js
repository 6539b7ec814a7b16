/** Versions: the tree, and where each leads. */

import { plain } from "../format.js";
import { guardWord, treeOf } from "../guard.js";
import { html } from "../html.js";
import { useData, useNow } from "../live.js";
import { address } from "../router.js";
import { S } from "../strings.js";
import { Awaited, Badge, Time, Title } from "../ui.js";
import { Version } from "./version.js";

const T = S.versions;

/** @param {{ place: import("../router.js").Place }} props */
export function Versions({ place }) {
  const versions = useData("/rl/versions", { kinds: ["version", "control"] });
  const rows = versions.data?.versions ?? [];
  if (place.id) return html`<${Version} key=${place.id} number=${Number(place.id)} versions=${versions} />`;
  return html`<${Title} text=${T.title}>
      <a class="button" href=${address("compare")}>${S.compare.title}</a>
    <//>
    <${Awaited} of=${versions}>
      ${rows.length ? null : html`<p class="note">${S.now.noVersion}</p>`}
      <ol class="tree" role="list">
        ${treeOf(rows).map(({ version, depth }) => html`<li key=${version.number} style=${{ "--depth": String(Math.min(depth, 6)) }}>
          <${Row} version=${version} />
        </li>`)}
      </ol>
    <//>`;
}

/** @param {{ version: any }} props */
export function State({ version }) {
  const kind = version.state === "live" ? "good" : version.state === "rejected" ? "bad" : "plain";
  return html`<${Badge} text=${T.states[version.state] ?? version.state} kind=${kind} />${version.state === "retired" && version.available === false
    ? html` <${Badge} text=${T.gone} />`
    : null}`;
}

/** @param {{ version: any }} props */
function Row({ version }) {
  const now = useNow();
  const word = guardWord(version);
  const about = word ? (word.passed ? plain(word.words) : T.rejected(plain(word.words) || T.noReason)) : T.base;
  return html`<a class=${`version ${version.state}`} href=${address("versions", String(version.number))}>
    <span class="name">${T.number(version.number)} <${State} version=${version} /></span>
    <span class="meta">
      ${[T.of(version.parent), version.number ? T.samples(version.sample_ids?.length ?? 0) : ""].filter(Boolean).join(" · ")}
      ${version.number ? " · " : ""}<${Time} time=${version.time} now=${now} />
    </span>
    ${about ? html`<span class="about">${about}</span>` : null}
  </a>`;
}
