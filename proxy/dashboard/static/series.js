/**
 * Figures of versions as lines to draw.
 *
 * @typedef {{ number: number, state: string, metrics: Record<string, number> }} Measured
 * @typedef {{ x: number[], lines: Record<string, (number | null)[]> }} Series
 */

/**
 * The families of metrics, each with its names: `loss/total` is in `loss`, `tokens` in `other`.
 *
 * @param {readonly Measured[]} versions
 * @returns {Record<string, string[]>}
 */
export function families(versions) {
  const names = new Set(versions.flatMap((version) => Object.keys(version.metrics)));
  /** @type {Record<string, string[]>} */
  const found = Object.create(null);
  for (const name of [...names].sort()) {
    const family = name.includes("/") ? (name.split("/", 1)[0] ?? "other") : "other";
    (found[family] ??= []).push(name);
  }
  return found;
}

/**
 * The values of some metrics by version, `null` where a version lacks one.
 *
 * @param {readonly Measured[]} versions
 * @param {readonly string[]} names
 * @returns {Series}
 */
export function seriesOf(versions, names) {
  const sorted = [...versions].filter((one) => Object.keys(one.metrics).length).sort((a, b) => a.number - b.number);
  /** @type {Record<string, (number | null)[]>} */
  const lines = Object.create(null);
  for (const name of names) lines[name] = sorted.map((version) => finite(version.metrics[name]));
  return { x: sorted.map((version) => version.number), lines };
}

/** @param {number | undefined} value */
function finite(value) {
  return value !== undefined && Number.isFinite(value) ? value : null;
}

/**
 * An exponential mean; `amount` from 0 (as measured) to below 1. What is missing stays missing.
 *
 * @param {readonly (number | null)[]} values
 * @param {number} amount
 * @returns {(number | null)[]}
 */
export function smoothed(values, amount) {
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = amount * mean + (1 - amount) * value;
    weight = amount * weight + (1 - amount);
    return mean / weight;
  });
}

/**
 * Rows as CSV (RFC 4180). A text that a spreadsheet would take for a formula begins with an apostrophe.
 *
 * @param {readonly (readonly (string | number | null | undefined)[])[]} rows
 * @returns {string}
 */
export function toCsv(rows) {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** @param {string | number | null | undefined} value */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
