/**
 * A small Markdown: a text becomes a tree of blocks and spans, in time that grows with its length only. Nothing of it is
 * HTML: what it does not know stays as it was written, a link shows its address, an image is a link.
 *
 * @typedef {{ kind: "text" | "code" | "strong" | "em" | "link", text: string, address?: string }} Span
 * @typedef {{ kind: "paragraph" | "heading" | "code" | "quote" | "rule" | "list", level?: number, ordered?: boolean,
 *   text?: string, spans?: Span[], items?: Span[][], blocks?: Block[] }} Block
 */

const FENCE = /^ {0,3}(```|~~~)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*$/;
const ITEM = /^[ \t]{0,8}(?:([-*+])|(\d{1,9})[.)])[ \t]+(.*)$/;
const QUOTE = /^ {0,3}>[ ]?(.*)$/;
const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>"]+$/i;
/** Quotes within quotes are followed this far. */
const DEEPEST = 4;
/** A span does not reach further than this, so that one that is never closed costs no more. */
const LONGEST_SPAN = 2000;

/**
 * @param {string} text
 * @param {number} [depth]
 * @returns {Block[]}
 */
export function parseMarkdown(text, depth = 0) {
  const lines = text.split(/\r\n|\n|\r/);
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence) {
      const from = at + 1;
      at = from;
      while (at < lines.length && !(lines[at] ?? "").trimStart().startsWith(fence[1] ?? "```")) at += 1;
      blocks.push({ kind: "code", text: lines.slice(from, at).join("\n") });
      at += 1;
    } else if (heading) {
      blocks.push({ kind: "heading", level: (heading[1] ?? "").length, spans: parseSpans(heading[2] ?? "") });
      at += 1;
    } else if (RULE.test(line)) {
      blocks.push({ kind: "rule" });
      at += 1;
    } else if (QUOTE.test(line) && depth < DEEPEST) {
      const quoted = [];
      for (let found; at < lines.length && (found = QUOTE.exec(lines[at] ?? "")); at += 1) quoted.push(found[1] ?? "");
      blocks.push({ kind: "quote", blocks: parseMarkdown(quoted.join("\n"), depth + 1) });
    } else if (ITEM.test(line)) {
      at = list(lines, at, blocks);
    } else {
      const from = at;
      at += 1;
      while (at < lines.length && !begins(lines[at] ?? "")) at += 1;
      blocks.push({ kind: "paragraph", spans: parseSpans(lines.slice(from, at).join("\n")) });
    }
  }
  return blocks;
}

/** @param {string} line */
function begins(line) {
  return !line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

/**
 * @param {readonly string[]} lines
 * @param {number} from
 * @param {Block[]} blocks
 * @returns {number} the first line after the list
 */
function list(lines, from, blocks) {
  const ordered = ITEM.exec(lines[from] ?? "")?.[2] !== undefined;
  /** @type {string[][]} */
  const items = [];
  let at = from;
  for (; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    const found = RULE.test(line) ? null : ITEM.exec(line);
    if (found && (found[2] !== undefined) === ordered) items.push([found[3] ?? ""]);
    else if (!found && !begins(line)) items[items.length - 1]?.push(line.trim());
    else break;
  }
  blocks.push({ kind: "list", ordered, items: items.map((item) => parseSpans(item.join("\n"))) });
  return at;
}

/**
 * @param {string} text
 * @returns {Span[]}
 */
export function parseSpans(text) {
  /** @type {Span[]} */
  const spans = [];
  let plainFrom = 0;
  let at = 0;
  const special = /[`*_[!<h]/g;
  while (at < text.length) {
    special.lastIndex = at;
    const next = special.exec(text);
    if (!next) break;
    const found = spanAt(text, next.index);
    if (found) {
      if (next.index > plainFrom) spans.push({ kind: "text", text: text.slice(plainFrom, next.index) });
      spans.push(found.span);
      plainFrom = found.end;
    }
    at = found ? found.end : next.index + 1;
  }
  if (plainFrom < text.length) spans.push({ kind: "text", text: text.slice(plainFrom) });
  return spans;
}

/**
 * @param {string} text
 * @param {number} at
 * @returns {{ span: Span, end: number } | null}
 */
function spanAt(text, at) {
  const rest = text.slice(at, at + LONGEST_SPAN);
  const first = rest[0];
  if (first === "`") {
    const marks = (/^`+/.exec(rest) ?? ["`"])[0];
    const end = rest.indexOf(marks, marks.length);
    return end > 0 ? { span: { kind: "code", text: rest.slice(marks.length, end) }, end: at + end + marks.length } : null;
  }
  if (first === "*" || first === "_") {
    if (first === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "")) return null;
    const mark = rest.startsWith(first + first) ? first + first : first;
    const end = rest.indexOf(mark, mark.length + 1);
    if (end < 0 || /\s/.test(rest[mark.length] ?? " ") || /\s/.test(rest[end - 1] ?? " ")) return null;
    const kind = mark.length === 2 ? "strong" : "em";
    return { span: { kind, text: rest.slice(mark.length, end) }, end: at + end + mark.length };
  }
  const link = /^!?\[([^[\]\n]{0,500})\]\(([^()\s]{1,1000})\)/.exec(rest);
  if (link) return linked(link[1] ?? "", link[2] ?? "", at + link[0].length);
  if (/[\p{L}\p{N}]/u.test(text[at - 1] ?? "")) return null;
  const bare = /^<?(https?:\/\/[^\s<>"']{1,1000})>?/.exec(rest);
  return bare ? linked("", (bare[1] ?? "").replace(/[.,;:!?)\]]+$/, ""), -1, at, rest) : null;
}

/**
 * A link, if its address is one that a person may want to follow; else nothing, and it stays text.
 *
 * @param {string} text
 * @param {string} target
 * @param {number} end
 * @param {number} [at]
 * @param {string} [rest]
 * @returns {{ span: Span, end: number } | null}
 */
function linked(text, target, end, at = 0, rest = "") {
  if (!SAFE.test(target)) return null;
  const closed = rest.startsWith("<") ? target.length + (rest[target.length + 1] === ">" ? 2 : 1) : target.length;
  return { span: { kind: "link", text: text || target, address: target }, end: end < 0 ? at + closed : end };
}
