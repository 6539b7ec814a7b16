import { readFileSync } from "node:fs";

import { describe, expect, it } from "vitest";

import plugin from "../src/index.js";
import { PROVIDER, readSettings } from "../src/settings.js";

interface Manifest {
  id: string;
  version: string;
  providers: string[];
  activation: { onStartup: boolean };
  configSchema: { additionalProperties: boolean; properties: Record<string, { type: string | string[] }> };
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(`../${name}`, import.meta.url), "utf8"));
}

const manifest = read("openclaw.plugin.json") as Manifest;
const pack = read("package.json") as { name: string; version: string; license: string; files: string[] };

describe("the manifest", () => {
  it("agrees with the package and the plug-in", () => {
    expect(manifest.id).toBe(pack.name);
    expect(manifest.id).toBe(plugin.id);
    expect(manifest.version).toBe(pack.version);
    expect(manifest.providers).toEqual([PROVIDER]);
    expect(manifest.activation.onStartup).toBe(true);
    expect(pack.license).toBe("Apache-2.0");
  });

  it("allows exactly the known settings", () => {
    const known = new Set<string>();
    const watched = new Proxy<Record<string, unknown>>(
      {},
      {
        get: (_target, name) => {
          known.add(String(name));
          return undefined;
        },
      },
    );
    readSettings(watched, {});
    expect(Object.keys(manifest.configSchema.properties).sort()).toEqual([...known].sort());
    expect(manifest.configSchema.additionalProperties).toBe(false);
  });

  it("is explained in the README, setting by setting", () => {
    const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
    for (const name of Object.keys(manifest.configSchema.properties)) expect(readme).toContain(`\`${name}\``);
  });
});
