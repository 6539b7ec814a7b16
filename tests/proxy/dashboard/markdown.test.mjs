import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMarkdown, parseSpans } from "../../../proxy/dashboard/static/markdown.js";

const kinds = (text) => parseMarkdown(text).map((block) => block.kind);

test("blocks: headings, lists, quotes, code, rules, paragraphs", () => {
  const text = "# Title\ntext\nof two lines\n\n- one\n- two\n  more\n\n1. first\n\n> quoted\n> - within\n\n---\n```js\nlet x = 1;\n```\nend";
  assert.deepEqual(kinds(text), ["heading", "paragraph", "list", "list", "quote", "rule", "code", "paragraph"]);
  const [, , bullets, numbers, quote, , code] = parseMarkdown(text);
  assert.deepEqual(bullets.items.map((item) => item[0].text), ["one", "two\nmore"]);
  assert.equal(numbers.ordered, true);
  assert.deepEqual(quote.blocks.map((block) => block.kind), ["paragraph", "list"]);
  assert.equal(code.text, "let x = 1;");
});

test("spans: strong, emphasis, code, links with their addresses", () => {
  assert.deepEqual(parseSpans("a **b** *c* `d` [e](https://f.example/g) https://h.example/i."), [
    { kind: "text", text: "a " },
    { kind: "strong", text: "b" },
    { kind: "text", text: " " },
    { kind: "em", text: "c" },
    { kind: "text", text: " " },
    { kind: "code", text: "d" },
    { kind: "text", text: " " },
    { kind: "link", text: "e", address: "https://f.example/g" },
    { kind: "text", text: " " },
    { kind: "link", text: "https://h.example/i", address: "https://h.example/i" },
    { kind: "text", text: "." },
  ]);
});

test("an image becomes a link, so that nothing is fetched", () => {
  assert.deepEqual(parseSpans("![secret](https://evil.example/x.png)"), [
    { kind: "link", text: "secret", address: "https://evil.example/x.png" },
  ]);
});

test("an address that runs something stays text", () => {
  for (const address of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "//evil.example", "/rl/pause"]) {
    assert.deepEqual(parseSpans(`[x](${address})`).map((span) => span.kind), ["text"], address);
  }
});

test("markup stays as it was written", () => {
  const text = "<script>alert(1)</script> <img src=x onerror=alert(1)>";
  assert.deepEqual(parseSpans(text), [{ kind: "text", text }]);
});

test("names with underscores and lonely marks stay text", () => {
  for (const text of ["snake_case_name", "2 * 3 * 4", "a ** b", "`open", "[x](", "5 * x"]) {
    assert.equal(parseSpans(text).map((span) => span.text).join(""), text);
    assert.deepEqual(parseSpans(text).map((span) => span.kind), ["text"], text);
  }
});

test("nothing of a text is lost, whatever it is", () => {
  for (const text of ["<https://a.example/b>", "**a*b**", "``a`b``", "***x***", "a\u0000b"]) {
    const words = parseSpans(text).map((span) => span.text).join("");
    for (const letter of text.replace(/[^a-z]/g, "")) assert.ok(words.includes(letter), text);
  }
});

test("the work grows with the length of a text, not faster", { timeout: 100_000 }, () => {
  // A reader that goes back over the text for each mark would not come to an end here.
  for (const piece of ["*a ", "[", "![a](", "`", "``` ", "_", "> ", "- ", "https://", "<h", "**a", "#"]) {
    const text = piece.repeat(Math.floor(300_000 / piece.length));
    assert.ok(parseMarkdown(text).length >= 1, piece);
    assert.ok(parseMarkdown(text.replaceAll(" ", "\n")).length >= 1, piece);
  }
});
