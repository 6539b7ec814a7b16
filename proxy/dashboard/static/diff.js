/**
 * Two texts compared word by word.
 *
 * @typedef {{ text: string, kind: "same" | "left" | "right" }} Piece
 */

/** Longer texts are compared line by line: the table below has a cell for each pair. */
const MOST_CELLS = 4_000_000;

/**
 * The pieces of both texts in order; joining those of one side and the common ones gives that side again.
 *
 * @param {string} left
 * @param {string} right
 * @returns {Piece[]}
 */
export function difference(left, right) {
  for (const pattern of [/\s+|[\p{L}\p{N}_]+|./gsu, /[^\n]*\n|[^\n]+/g]) {
    const a = left.match(pattern) ?? [];
    const b = right.match(pattern) ?? [];
    const start = common(a, b, (i) => i, (i) => i);
    const rest = Math.min(a.length, b.length) - start;
    const end = Math.min(rest, common(a, b, (i) => a.length - 1 - i, (i) => b.length - 1 - i));
    const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
    if (x.length * y.length > MOST_CELLS) continue;
    return joined([...same(a.slice(0, start)), ...longest(x, y), ...same(end ? a.slice(-end) : [])]);
  }
  return joined([{ text: left, kind: "left" }, { text: right, kind: "right" }]);
}

/**
 * @param {readonly string[]} a
 * @param {readonly string[]} b
 * @param {(i: number) => number} ofA
 * @param {(i: number) => number} ofB
 */
function common(a, b, ofA, ofB) {
  let count = 0;
  while (count < a.length && count < b.length && a[ofA(count)] === b[ofB(count)]) count += 1;
  return count;
}

/**
 * @param {readonly string[]} words
 * @returns {Piece[]}
 */
function same(words) {
  return words.map((text) => ({ text, kind: "same" }));
}

/**
 * The longest common subsequence, by its table of lengths.
 *
 * @param {readonly string[]} a
 * @param {readonly string[]} b
 * @returns {Piece[]}
 */
function longest(a, b) {
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const at = (/** @type {number} */ i, /** @type {number} */ j) => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  /** @type {Piece[]} */
  const pieces = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pieces.push({ text: a[i] ?? "", kind: "same" });
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) {
      pieces.push({ text: a[i] ?? "", kind: "left" });
      i += 1;
    } else {
      pieces.push({ text: b[j] ?? "", kind: "right" });
      j += 1;
    }
  }
  return pieces;
}

/**
 * Neighbours of one kind as one piece, without empty ones.
 *
 * @param {readonly Piece[]} pieces
 * @returns {Piece[]}
 */
function joined(pieces) {
  /** @type {Piece[]} */
  const found = [];
  for (const piece of pieces) {
    const last = found[found.length - 1];
    if (!piece.text) continue;
    if (last?.kind === piece.kind) last.text += piece.text;
    else found.push({ ...piece });
  }
  return found;
}
