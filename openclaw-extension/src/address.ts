import { providerUrl, type Settings } from "./settings.js";
import type { State } from "./state.js";

/** The service's address and key: from the settings, else from the last request to the provider. */
export function address(settings: Settings, state: State): { url: string | undefined; apiKey: string | undefined } {
  return { url: settings.url ?? providerUrl(state.observed.url), apiKey: settings.apiKey ?? state.observed.apiKey };
}
