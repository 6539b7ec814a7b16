import type {
  AgentContext,
  AnswerMessage,
  AnswerStream,
  ChatMessage,
  Command,
  CommandContext,
  Headers,
  HostApi,
  HostConfig,
  Hooks,
  ModelResponse,
  Provider,
  StreamFn,
  StreamOptions,
} from "../src/host.js";
import plugin from "../src/index.js";

/** What one model call sent, and what it is to be answered with. */
export interface ModelCall {
  options?: StreamOptions;
  simple?: boolean;
  modelHeaders?: Headers;
  messages?: ChatMessage[];
  /** The id that the service gives the turn; none: an answer without our headers. */
  turnId?: string;
  /** What the service takes it for; "": it does not say. */
  kind?: "main" | "side" | "";
  status?: number;
  answer?: Partial<AnswerMessage> | Error;
}

/** OpenClaw as far as the plug-in sees it: it registers, calls hooks, makes model calls and runs commands. */
export class FakeHost {
  readonly logged: string[] = [];
  readonly hooks = new Map<keyof Hooks, (event: never, context: never) => unknown>();
  readonly commands = new Map<string, Command>();
  provider: Provider | undefined;

  constructor(
    readonly config: HostConfig = {},
    readonly pluginConfig: Record<string, unknown> = {},
  ) {
    plugin.register(this.api());
  }

  api(): HostApi {
    const log = (message: string): void => {
      this.logged.push(message);
    };
    return {
      config: this.config,
      pluginConfig: this.pluginConfig,
      logger: { debug: log, warn: log, error: log },
      on: (name: keyof Hooks, handler: (event: never, context: never) => unknown) => {
        this.hooks.set(name, handler);
      },
      registerProvider: (provider) => {
        this.provider = provider;
      },
      registerCommand: (command) => {
        this.commands.set(command.name, command);
      },
    };
  }

  fire<Name extends keyof Hooks>(name: Name, ...args: Parameters<Hooks[Name]>): unknown {
    const handler = this.hooks.get(name) as ((...given: Parameters<Hooks[Name]>) => unknown) | undefined;
    return handler?.(...args);
  }

  /** A run begins: what OpenClaw tells before its first model call. */
  run(context: AgentContext): void {
    this.fire("before_model_resolve", { prompt: "hello" }, context);
    this.fire("before_prompt_build", { prompt: "hello", messages: [] }, context);
  }

  /** A model call of a person's run `run-1` in session `s1`, if nothing else is said; gives the headers it sent. */
  async call(given: ModelCall = {}): Promise<Headers> {
    let sent: Headers = {};
    const inner: StreamFn = async (model, _context, options) => {
      sent = { ...model.headers, ...options?.headers };
      const response: ModelResponse = { status: given.status ?? 200, headers: responseHeaders(given) };
      await options?.onResponse?.(response, undefined as never);
      return answerStream(given.answer);
    };
    const context = { provider: "clawrl", streamFn: inner };
    const wrapped = given.simple
      ? this.provider?.wrapSimpleCompletionStreamFn(context)
      : this.provider?.wrapStreamFn(context);
    const options = given.options ?? { sessionId: "s1", requestId: "run-1:model:1" };
    const stream = await (wrapped ?? inner)(
      { baseUrl: "http://127.0.0.1:1/v1", ...(given.modelHeaders ? { headers: given.modelHeaders } : {}) },
      { messages: given.messages ?? [{ role: "user", content: "hello" }] },
      options,
    );
    await stream.result().catch(() => undefined);
    await settled();
    return sent;
  }

  async command(name: string, context: Partial<CommandContext> = {}): Promise<string> {
    const command = this.commands.get(name);
    if (command === undefined) throw new Error(`no command ${name}`);
    const answer = await command.handler({
      channel: "webchat",
      sessionId: "s1",
      sessionKey: "agent:main:main",
      ...context,
    });
    return answer.text;
  }
}

/** Forget what the plug-in keeps between registrations, as a new process would. */
export function forgetState(): void {
  for (const symbol of Object.getOwnPropertySymbols(globalThis)) {
    if (Symbol.keyFor(symbol)?.startsWith("openclaw-rl.")) Reflect.deleteProperty(globalThis, symbol);
  }
}

/** Let everything run that waits for nothing from outside. */
export async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

function responseHeaders(call: ModelCall): Headers {
  if (call.turnId === undefined) return {};
  const turn = { "x-openclaw-rl-turn": call.turnId };
  return call.kind === "" ? turn : { ...turn, "x-openclaw-rl-kind": call.kind ?? "main" };
}

function answerStream(answer: ModelCall["answer"]): AnswerStream {
  return {
    result: () =>
      answer instanceof Error
        ? Promise.reject(answer)
        : Promise.resolve({ content: [{ type: "text", text: "Fine." }], stopReason: "stop", ...answer }),
  };
}
