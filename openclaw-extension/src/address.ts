import { providerUrl, type Settings } from "./settings.js";
import type { State } from "./state.js";

/** Where the service is, and with which key: as set, else as the last request to it showed. */
export function address(settings: Settings, state: State): { url: string | undefined; apiKey: string | undefined } {
  return { url: settings.url ?? providerUrl(state.shown.url), apiKey: settings.apiKey ?? state.shown.apiKey };
}
