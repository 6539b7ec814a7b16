import type { HostConfig } from "./host.js";
import { MAIN_RUN_KINDS, type RunKind } from "./run-kind.js";

/** The id of our entry in `models.providers`; the manifest names it too. */
export const PROVIDER = "clawrl";

export interface Settings {
  /** Address of the service without `/v1`; `undefined` if not configured, until a request shows it. */
  url: string | undefined;
  apiKey: string | undefined;
  sessionTracking: boolean;
  /** The kinds of runs to train on. */
  mainRuns: ReadonlySet<RunKind>;
}

/** An invalid setting; the message names it and a valid value. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/** Alternative names, from other programs of this kind. */
const ALIASES = {
  url: "rollout_endpoint",
  sessionTracking: "session_tracking",
  trainingMode: "training_mode",
} as const;

/** Read `plugins.entries.openclaw-rl.config`; the provider's entry supplies defaults. Throws `SettingsError`. */
export function readSettings(given: Record<string, unknown> | undefined, config: HostConfig): Settings {
  const written = given ?? {};
  const provider = config.models?.providers?.[PROVIDER];
  const mode = either(written, "trainingMode", String);
  if (mode !== undefined && mode !== "async") {
    throw new SettingsError(
      `trainingMode is ${JSON.stringify(mode)}, but openclaw-rl trains in one way only: "async", in the background ` +
        'while the chat continues. Write "async" or leave the setting out.',
    );
  }
  const url = either(written, "url", (value) => serviceUrl(text(value, "url")));
  const tracking = either(written, "sessionTracking", (value) => value);
  if (tracking !== undefined && typeof tracking !== "boolean") {
    throw new SettingsError(`sessionTracking is ${JSON.stringify(tracking)}; it must be true or false.`);
  }
  return {
    url: url ?? providerUrl(provider?.baseUrl),
    apiKey: key(written["apiKey"]) ?? key(provider?.apiKey),
    sessionTracking: tracking ?? true,
    mainRuns: mainRuns(written["mainRuns"]),
  };
}

/** The service's address from a client's base URL: without `/v1` and trailing slashes. Throws `SettingsError`. */
export function serviceUrl(address: string): string {
  let parsed: URL | undefined;
  try {
    parsed = new URL(address);
  } catch {
    // Reported below, like an address with another protocol.
  }
  if (parsed?.protocol !== "http:" && parsed?.protocol !== "https:") {
    throw new SettingsError(
      `url is ${JSON.stringify(address)}, which is not a service address; use one like "http://127.0.0.1:30000".`,
    );
  }
  const path = parsed.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
  return parsed.origin + path;
}

/** Like `serviceUrl`, but `undefined` for an invalid address. */
export function providerUrl(baseUrl: string | undefined): string | undefined {
  if (baseUrl === undefined) return undefined;
  try {
    return serviceUrl(baseUrl);
  } catch {
    return undefined;
  }
}

/** A setting by its name or its alias. Throws `SettingsError` if both are set and disagree. */
function either<Value>(
  written: Record<string, unknown>,
  name: keyof typeof ALIASES,
  read: (value: unknown) => Value,
): Value | undefined {
  const alias = ALIASES[name];
  const own = written[name] === undefined ? undefined : read(written[name]);
  const other = written[alias] === undefined ? undefined : read(written[alias]);
  if (own !== undefined && other !== undefined && own !== other) {
    throw new SettingsError(
      `${name} is ${JSON.stringify(written[name])}, but ${alias}, another name for it, is ` +
        `${JSON.stringify(written[alias])}. Keep one of the two.`,
    );
  }
  return own ?? other;
}

function text(value: unknown, name: string): string {
  if (typeof value === "string") return value;
  throw new SettingsError(`${name} is ${JSON.stringify(value)}; it must be a string.`);
}

/** A key that can be sent; `undefined` for the placeholders by which OpenClaw hides secrets from plug-ins. */
export function key(value: unknown): string | undefined {
  if (typeof value !== "string" || value.trim() === "" || /^\s*(?:oc-sent-|secretref-)/.test(value)) return undefined;
  return value.trim();
}

function mainRuns(value: unknown): ReadonlySet<RunKind> {
  if (value === undefined) return new Set<RunKind>(["person", "agent"]);
  const kinds: readonly unknown[] = Array.isArray(value) ? value : [value];
  const known: readonly unknown[] = MAIN_RUN_KINDS;
  const wrong = kinds.find((kind) => !known.includes(kind));
  if (wrong !== undefined) {
    throw new SettingsError(`mainRuns names ${JSON.stringify(wrong)}; it may name ${MAIN_RUN_KINDS.join(", ")}.`);
  }
  return new Set(kinds as RunKind[]);
}
