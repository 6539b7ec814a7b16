/** Not run: `npm run typecheck:host` compares `src/host.ts` with the types of an installed openclaw package. */

import type { OpenClawPluginApi, OpenClawPluginDefinition } from "openclaw/plugin-sdk/plugin-entry";

import type { Command, HostConfig, Hooks, Logger, Provider } from "../src/host.js";
import plugin from "../src/index.js";

export const definition: OpenClawPluginDefinition = { ...plugin, register: () => undefined };

export function everythingUsed(api: OpenClawPluginApi, hooks: Hooks, provider: Provider, command: Command): void {
  const logger: Logger = api.logger;
  const config: HostConfig = api.config as HostConfig;
  const pluginConfig: Record<string, unknown> | undefined = api.pluginConfig;
  api.on("before_model_resolve", hooks.before_model_resolve);
  api.on("before_prompt_build", hooks.before_prompt_build);
  api.on("message_received", hooks.message_received);
  api.on("message_sent", hooks.message_sent);
  api.on("session_end", hooks.session_end);
  api.on("gateway_stop", hooks.gateway_stop);
  api.registerProvider(provider);
  api.registerCommand(command);
  void [logger, config, pluginConfig];
}

/** The plug-in accepts OpenClaw's own API. */
export function registered(api: OpenClawPluginApi): void {
  plugin.register(api);
}
