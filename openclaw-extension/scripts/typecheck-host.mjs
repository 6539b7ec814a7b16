// Compares src/host.ts with the types of a real openclaw package: in the folder OPENCLAW_PACKAGE, in node_modules, or in
// .cache/rigs of this repository. If there is none, it says so and succeeds.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const candidates = [
  process.env.OPENCLAW_PACKAGE,
  join(root, "node_modules/openclaw"),
  join(root, "../.cache/rigs/openclaw/node_modules/openclaw"),
];
const found = candidates.find((folder) => folder && existsSync(join(folder, "dist/plugin-sdk/plugin-entry.d.ts")));
if (!found) {
  console.log("No openclaw package found (set OPENCLAW_PACKAGE to its folder): host types not checked.");
  process.exit(0);
}

const folder = mkdtempSync(join(tmpdir(), "openclaw-rl-types-"));
const config = join(folder, "tsconfig.json");
writeFileSync(
  config,
  JSON.stringify({
    extends: join(root, "tsconfig.json"),
    compilerOptions: {
      exactOptionalPropertyTypes: false,
      paths: { "openclaw/plugin-sdk/*": [join(found, "dist/plugin-sdk/*.d.ts")] },
      typeRoots: [join(root, "node_modules/@types")],
    },
    include: [],
    files: [join(root, "test/host-types.ts")],
  }),
);
const result = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", config], {
  stdio: "inherit",
});
rmSync(folder, { recursive: true });
if (result.status === 0) console.log(`Host types agree with ${found}.`);
process.exit(result.status ?? 1);
