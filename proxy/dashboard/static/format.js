/** Numbers, times and states as people read them. Nothing here touches the page. */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/**
 * How long ago `time` was, both in Unix seconds.
 *
 * @param {number | null | undefined} time
 * @param {number} now
 * @returns {string}
 */
export function ago(time, now) {
  if (time === null || time === undefined) return "never";
  const seconds = Math.max(0, now - time);
  if (seconds < 45) return "just now";
  if (seconds < HOUR) return `${Math.max(1, Math.round(seconds / MINUTE))} min ago`;
  if (seconds < DAY) return `${Math.round(seconds / HOUR)} h ago`;
  const days = Math.round(seconds / DAY);
  return days === 1 ? "yesterday" : `${days} days ago`;
}

/**
 * The exact local time, to the second.
 *
 * @param {number | null | undefined} time Unix seconds
 * @returns {string}
 */
export function exactTime(time) {
  if (time === null || time === undefined) return "";
  const date = new Date(time * 1000);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/**
 * Three significant digits; whole numbers with thin groups.
 *
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size < 1e-12) return "0";
  if (Number.isInteger(value)) return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f").replace("-", "−");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replaceAll("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/**
 * A value from −1 to +1, with its sign.
 *
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function signed(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 ? `+${figure(value)}` : figure(value);
}

/**
 * @param {number | null | undefined} bytes
 * @returns {string}
 */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/**
 * A share in per cent, "–" of nothing.
 *
 * @param {number} part
 * @param {number} whole
 * @returns {string}
 */
export function share(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

/**
 * A count and its noun: `1 turn`, `2 turns`.
 *
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 * @returns {string}
 */
export function counted(number, noun, plural = `${noun}s`) {
  return `${figure(number)} ${number === 1 ? noun : plural}`;
}

/**
 * A verdict as a tone for its badge: what was good, bad, or neither.
 *
 * @param {number | null | undefined} score
 * @returns {"good" | "bad" | "plain"}
 */
export function tone(score) {
  if (score === null || score === undefined || score === 0) return "plain";
  return score > 0 ? "good" : "bad";
}

/**
 * `values` in one line of words: `1, 2 and 3`.
 *
 * @param {readonly (string | number)[]} values
 * @returns {string}
 */
export function listed(values) {
  const texts = values.map(String);
  return texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts[texts.length - 1]}`;
}

const ESCAPES = /[\u001b\u009b](?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])?|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
const DIRECTIONS = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g;

/**
 * A text of people, models and tools without what would act on a terminal or turn the direction of the page around it.
 *
 * @param {unknown} text
 * @returns {string}
 */
export function plain(text) {
  return typeof text === "string" ? text.replace(ESCAPES, "").replace(DIRECTIONS, "") : "";
}

/**
 * The first `most` characters of a text, and how many were left out.
 *
 * @param {string} text
 * @param {number} most
 * @returns {{ text: string, more: number }}
 */
export function clipped(text, most) {
  return text.length <= most ? { text, more: 0 } : { text: text.slice(0, most), more: text.length - most };
}
