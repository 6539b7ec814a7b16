/**
 * The guard's report on a version, as rows and as words.
 *
 * @typedef {{ name: string, value: number | null, limit: number | null, beyond: boolean }} Check
 */

/** @type {readonly (readonly [string, string, string, string])[]} name, group, value, limit */
const PAIRS = [
  ["KL to its parent, nats a token", "", "kl", "max_kl"],
  ["Drop of accepted answers, nats a token", "accepted", "drop", "limit"],
  ["Distance of its answers from the base, nats a token", "", "kl_base", "max_kl_base"],
];

/**
 * The checks that the report has figures for.
 *
 * @param {Record<string, any>} report
 * @returns {Check[]}
 */
export function checksOf(report) {
  const found = [];
  for (const [name, group, value, limit] of PAIRS) {
    const figures = group ? report[group] : report;
    if (typeof figures?.[value] === "number") found.push(check(name, figures[value], figures[limit] ?? null));
  }
  const answers = report["answers"];
  if (answers?.asked) {
    const share = answers.candidate.flawed / answers.asked;
    const parent = answers.parent.flawed / answers.asked;
    found.push(check("Share of flawed answers, more than its parent's", share - parent, answers.limit ?? null));
  }
  const probes = report["probes"];
  if (probes?.asked) {
    const failed = (probes.failed ?? []).length;
    found.push(check("Your probes that it fails and its parent passes", failed, 0));
  }
  return found;
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number | null} limit
 * @returns {Check}
 */
function check(name, value, limit) {
  return { name, value, limit, beyond: limit !== null && value > limit };
}

/**
 * The guard's word in a line; `null` for the base, which it does not check.
 *
 * @param {{ number: number, state: string, guard: Record<string, any> }} version
 * @returns {{ passed: boolean, words: string } | null}
 */
export function guardWord({ number, state, guard }) {
  if (!number) return null;
  if (state === "rejected" || guard["passed"] === false) return { passed: false, words: String(guard["reason"] || "") };
  if (guard["damaged"]) return { passed: false, words: `damaged: ${guard["damaged"]}` };
  if (guard["not_probed"]) return { passed: true, words: `not probed: ${guard["not_probed"]}` };
  if (guard["resumed"]) return { passed: true, words: `not probed: resumed from ${guard["resumed"]}` };
  return { passed: true, words: "" };
}

/**
 * Versions as a tree: each with its depth, children after their parent, in the order of their numbers. The newest child
 * of a version continues its line, so that only branches move to the right.
 *
 * @template {{ number: number, parent: number | null }} V
 * @param {readonly V[]} versions
 * @returns {{ version: V, depth: number }[]}
 */
export function treeOf(versions) {
  const known = new Set(versions.map((one) => one.number));
  /** @type {Map<number | null, V[]>} */
  const children = new Map();
  for (const one of [...versions].sort((a, b) => a.number - b.number)) {
    const parent = one.parent !== null && known.has(one.parent) && one.parent < one.number ? one.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  /** @type {{ version: V, depth: number }[]} */
  const rows = [];
  const open = [...(children.get(null) ?? [])].reverse().map((version) => ({ version, depth: 0 }));
  for (let next; (next = open.pop()); ) {
    rows.push(next);
    const { depth } = next;
    const below = children.get(next.version.number) ?? [];
    // The newest child continues the line and comes last; the others are branches.
    const last = below.length - 1;
    for (let place = last; place >= 0; place -= 1) {
      const version = below[place];
      if (version) open.push({ version, depth: place === last ? depth : depth + 1 });
    }
  }
  return rows;
}
