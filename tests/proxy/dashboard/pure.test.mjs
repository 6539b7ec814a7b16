import assert from "node:assert/strict";
import { test } from "node:test";
import { difference } from "../../../proxy/dashboard/static/diff.js";
import * as format from "../../../proxy/dashboard/static/format.js";
import { checksOf, guardWord, treeOf } from "../../../proxy/dashboard/static/guard.js";
import { address, parsePlace } from "../../../proxy/dashboard/static/router.js";
import { families, seriesOf, smoothed, toCsv } from "../../../proxy/dashboard/static/series.js";
import { eventReader } from "../../../proxy/dashboard/static/sse.js";
import { branches, merged } from "../../../proxy/dashboard/static/transcript.js";

test("every place has an address that leads back to it", () => {
  const odd = "a/b?c#d %ü";
  const place = parsePlace(address("conversations", odd, { turn: "turn_1", query: "x&y=z", day: "" }));
  assert.deepEqual({ ...place, query: { ...place.query } }, { screen: "conversations", id: odd, query: { turn: "turn_1", query: "x&y=z" } });
});

test("an unknown or broken address is the first screen", () => {
  for (const hash of ["", "#", "#/", "#/nothing/1", "#ticket=abc", "#/__proto__", "#/now/%E0%A4%A"]) {
    assert.equal(parsePlace(hash).screen, "now", hash);
  }
  assert.equal(parsePlace("#/conversations/%E0%A4%A").id, "%E0%A4%A");
});

test("both sides of a difference are whole", () => {
  const pairs = [
    ["the cat sat", "the dog sat down"],
    ["", "new"],
    ["same", "same"],
    ["a\nb\nc", "c\nb\na"],
    ["x ".repeat(3000), "y ".repeat(3000)],
    ["a".repeat(5) + " " + "b", "b " + "a".repeat(5)],
  ];
  for (const [left, right] of pairs) {
    const pieces = difference(left, right);
    const side = (kind) => pieces.filter((piece) => piece.kind !== kind).map((piece) => piece.text).join("");
    assert.equal(side("right"), left);
    assert.equal(side("left"), right);
  }
  assert.deepEqual(difference("the cat sat", "the dog sat").map((piece) => [piece.kind, piece.text]), [
    ["same", "the "],
    ["left", "cat"],
    ["right", "dog"],
    ["same", " sat"],
  ]);
});

test("figures, sizes, times and verdicts as people read them", () => {
  assert.deepEqual([0, -1, 12345, 0.12345, -0.5, 5.6e-17, 1.5e-5, null].map(format.figure), [
    "0", "−1", "12\u202f345", "0.123", "−0.5", "0", "1.5e−5", "–",
  ]);
  assert.deepEqual([1, -1, 0, null].map(format.signed), ["+1", "−1", "0", "–"]);
  assert.deepEqual([0, 999, 1500, 123456789].map(format.size), ["0 B", "999 B", "1.5 kB", "123 MB"]);
  assert.deepEqual([0, 60, 3600, 86400, 10 * 86400].map((age) => format.ago(1e9 - age, 1e9)), [
    "just now", "1 min ago", "1 h ago", "yesterday", "10 days ago",
  ]);
  assert.equal(format.ago(2e9, 1e9), "just now");
  assert.equal(format.counted(1, "turn"), "1 turn");
  assert.equal(format.listed([1, 2, 3]), "1, 2 and 3");
});

test("escape sequences and marks of direction are taken out of texts", () => {
  assert.equal(format.plain("\u001b[31mred\u001b[0m \u202edesrever\u202c a\u0000b\nc\t"), "red desrever ab\nc\t");
  assert.equal(format.plain(undefined), "");
});

test("events are read from pieces of any size", () => {
  const stream = ': beat\n\nid: 7\nevent: turn\ndata: {"turn_id":\ndata: "t"}\n\nid: 8\r\ndata: x\r\n\r\ndata: cut';
  for (const size of [1, 3, 1000]) {
    const read = eventReader();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...read(stream.slice(at, at + size)));
    assert.deepEqual(found, [
      { id: "7", event: "turn", data: '{"turn_id":\n"t"}' },
      { id: "8", event: "message", data: "x" },
    ]);
  }
});

test("versions are a tree whose newest line stays straight", () => {
  const versions = [[0, null], [1, 0], [2, 1], [3, 1], [4, 3], [9, 7]].map(([number, parent]) => ({ number, parent }));
  assert.deepEqual(treeOf(versions).map(({ version, depth }) => [version.number, depth]), [
    [0, 0], [1, 0], [2, 1], [3, 0], [4, 0], [9, 0],
  ]);
});

test("the guard's word and its measures", () => {
  const guard = {
    passed: false, reason: "too far", kl: 0.6, max_kl: 0.5, accepted: { answers: 9, drop: 0.1, limit: 0.3 },
    answers: { asked: 16, candidate: { flawed: 8 }, parent: { flawed: 0 }, limit: 0.25 },
  };
  assert.deepEqual(guardWord({ number: 3, state: "rejected", guard }), { passed: false, words: "too far" });
  assert.equal(guardWord({ number: 0, state: "live", guard: {} }), null);
  assert.deepEqual(checksOf(guard).map(({ value, limit, beyond }) => [value, limit, beyond]), [
    [0.6, 0.5, true], [0.1, 0.3, false], [0.5, 0.25, true],
  ]);
  assert.deepEqual(checksOf({}), []);
});

test("figures of versions become lines, smoothed without inventing any", () => {
  const versions = [
    { number: 2, state: "live", metrics: { "loss/total": 1, tokens: 5 } },
    { number: 1, state: "retired", metrics: { "loss/total": 3, "loss/binary": Number.NaN } },
    { number: 0, state: "retired", metrics: {} },
  ];
  assert.deepEqual({ ...families(versions) }, { loss: ["loss/binary", "loss/total"], other: ["tokens"] });
  const { x, lines } = seriesOf(versions, ["loss/total", "loss/binary"]);
  assert.deepEqual([x, lines["loss/total"], lines["loss/binary"]], [[1, 2], [3, 1], [null, null]]);
  assert.deepEqual(smoothed([4, null, 4], 0.9), [4, null, 4]);
  assert.deepEqual(smoothed([1, 2], 0), [1, 2]);
});

test("a CSV quotes what it must and begins no formula", () => {
  assert.equal(toCsv([["a,b", 'c"d', null, -1], ["=1+1", "x\ny", 2, undefined]]), '"a,b","c""d",,-1\r\n\'=1+1,"x\ny",2,\r\n');
});

const turn = (turn_id, parent, text) => ({ turn_id, parent, episode: 0, kind: "main", new_messages: [{ role: "user", text }] });

test("tries at the same message are one place, shown by the newest", () => {
  const places = branches([turn("a", null, "x"), turn("b", "a", "y"), turn("c", "a", "y"), turn("d", "a", "z")]);
  assert.deepEqual(places.map(({ item, earlier }) => [item.turn_id, earlier.map((one) => one.turn_id)]), [
    ["a", []], ["c", ["b"]], ["d", []],
  ]);
});

test("a page that is read again renews its turns in their places", () => {
  const before = [turn("a", null, "x"), turn("b", "a", "y")];
  const after = merged(before, [{ ...before[0], state: "trained" }, turn("c", "b", "z")]);
  assert.deepEqual(after.map((one) => [one.turn_id, one.state]), [["a", "trained"], ["b", undefined], ["c", undefined]]);
});
