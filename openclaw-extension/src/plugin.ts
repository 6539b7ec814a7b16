import { giveFeedback } from "./feedback.js";
import type { AgentContext, CommandContext, HostApi } from "./host.js";
import { gatewayStopped, sessionEnded } from "./session-end.js";
import { PROVIDER, readSettings, SettingsError, type Settings } from "./settings.js";
import { sharedState, type State } from "./state.js";
import { statusText } from "./status.js";
import { wrapStream } from "./stream.js";

/**
 * Register with OpenClaw. It calls this several times in one process, so nothing is opened here. With invalid settings
 * the plug-in leaves chats alone, and its commands report the error.
 */
export function register(api: HostApi): void {
  try {
    const settings = readSettings(api.pluginConfig, api.config);
    const state = sharedState();
    registerProvider(api, settings, state);
    registerHooks(api, settings, state);
    registerCommands(api, {
      good: (context) => giveFeedback("good", context, settings, state),
      bad: (context) => giveFeedback("bad", context, settings, state),
      rl: () => statusText(settings, state),
    });
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const message = `openclaw-rl is inactive because of a setting: ${error.message}`;
    api.logger.error(message);
    const answer = (): Promise<string> => Promise.resolve(message);
    registerCommands(api, { good: answer, bad: answer, rl: answer });
  }
}

function registerProvider(api: HostApi, settings: Settings, state: State): void {
  api.registerProvider({
    id: PROVIDER,
    label: "openclaw-rl",
    auth: [],
    wrapStreamFn: (context) => wrapStream(context, false, settings, state, api.logger),
    wrapSimpleCompletionStreamFn: (context) => wrapStream(context, true, settings, state, api.logger),
  });
}

function registerHooks(api: HostApi, settings: Settings, state: State): void {
  const noteRun = (_event: unknown, context: AgentContext): void => {
    const run = state.runs.note(context);
    state.sessions.note(run?.sessionKey, run?.sessionId);
  };
  api.on("before_model_resolve", noteRun);
  api.on("before_prompt_build", noteRun);
  api.on("message_received", (event, context) => {
    state.quotes.received(event, context, Date.now());
  });
  api.on("message_sent", (event, context) => {
    state.messages.sent(event, context, Date.now());
  });
  api.on("session_end", (event, context) =>
    sessionEnded(event, event.sessionKey ?? context.sessionKey, settings, state),
  );
  api.on("gateway_stop", (event) => gatewayStopped(event, settings, state));
}

type Answers = Record<"good" | "bad" | "rl", (context: CommandContext) => Promise<string>>;

function registerCommands(api: HostApi, answers: Answers): void {
  const descriptions = {
    good: "Rate the last answer as good: /good [why]",
    bad: "Rate the last answer as bad: /bad [why]",
    rl: "Show the training status: version, interactions, backlog, last change",
  };
  for (const name of ["good", "bad", "rl"] as const) {
    api.registerCommand({
      name,
      description: descriptions[name],
      acceptsArgs: name !== "rl",
      handler: async (context) => ({ text: await answers[name](context) }),
    });
  }
}
