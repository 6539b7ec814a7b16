/** The package as npm would publish it, unpacked elsewhere and loaded in a separate Node process. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** Everything a build needs: the test builds a copy, so that it leaves no `dist` behind. */
const SOURCES = [
  "package.json",
  "openclaw.plugin.json",
  "README.md",
  "tsconfig.json",
  "tsconfig.build.json",
  "scripts",
  "src",
];

const PROGRAM = `
const { default: plugin } = await import(process.argv[1]);
const seen = { hooks: [], commands: [], providers: [] };
const api = {
  config: { models: { providers: { clawrl: { baseUrl: "http://127.0.0.1:1/v1" } } } },
  pluginConfig: {},
  logger: { warn() {}, error() {} },
  on: (name) => seen.hooks.push(name),
  registerProvider: (provider) => { seen.providers.push(provider.id); seen.provider = provider; },
  registerCommand: (command) => { seen.commands.push(command.name); seen[command.name] = command; },
};
plugin.register(api);
const streamFn = (model, context, options) => {
  seen.headers = options.headers;
  return { result: () => Promise.resolve({ content: [], stopReason: "stop" }) };
};
seen.provider.wrapStreamFn({ provider: "clawrl", streamFn })({}, { messages: [] }, { sessionId: "s1" });
const { text } = await seen.good.handler({ channel: "webchat", sessionId: "s1" });
console.log(JSON.stringify({ hooks: seen.hooks, commands: seen.commands, providers: seen.providers, headers: seen.headers, text }));
`;

let folder: string;
let unpacked: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "openclaw-rl-package-"));
  const copy = join(folder, "copy");
  for (const name of SOURCES) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: copy });
  const archive = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  if (archive === undefined) throw new Error("npm pack wrote no archive");
  execFileSync("tar", ["-xzf", archive], { cwd: folder });
  unpacked = join(folder, "package");
}, 120_000);

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe("the packed package", () => {
  it("holds compiled modules, manifest and README, and no sources", () => {
    expect(readdirSync(unpacked).sort()).toEqual(["README.md", "dist", "openclaw.plugin.json", "package.json"]);
    const compiled = readdirSync(join(unpacked, "dist"));
    const sources = readdirSync(join(ROOT, "src")).map((name) => name.replace(/\.ts$/, ""));
    expect(compiled.filter((name) => name.endsWith(".js")).sort()).toEqual(sources.map((name) => `${name}.js`).sort());
    expect(compiled.filter((name) => !/\.(?:js|d\.ts)$/.test(name))).toEqual([]);
  });

  it("names an existing entry point", () => {
    const pack = JSON.parse(readFileSync(join(unpacked, "package.json"), "utf8")) as {
      type: string;
      openclaw: { extensions: string[] };
      dependencies?: unknown;
    };
    expect(pack.type).toBe("module");
    expect(pack.dependencies).toBeUndefined();
    for (const entry of pack.openclaw.extensions) expect(readFileSync(join(unpacked, entry), "utf8")).not.toBe("");
  });

  it("loads, registers and exits with nothing else installed", () => {
    const program = ["--input-type=module", "--eval", PROGRAM, join(unpacked, "dist/index.js")];
    const options = { cwd: folder, encoding: "utf8", timeout: 8_000 } as const; // a queued post must not keep the process alive
    const seen: unknown = JSON.parse(execFileSync(process.execPath, program, options));
    expect(seen).toEqual({
      hooks: [
        "before_model_resolve",
        "before_prompt_build",
        "message_received",
        "message_sent",
        "session_end",
        "gateway_stop",
      ],
      commands: ["good", "bad", "rl"],
      providers: ["clawrl"],
      headers: { "X-Session-Id": "s1" },
      text: expect.stringMatching(/^👍 saved: openclaw-rl does not answer/) as string,
    });
  });
});
