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
  /** Of the model that is asked; ours, if nothing else is said. */
  provider?: string;
  messages?: ChatMessage[];
  /** The id that the service gives the turn; none: an answer without our headers. */
  turnId?: string;
  /** What the service takes it for; "": it does not say. */
  kind?: "main" | "side" | "";
  status?: number;
  answer?: Partial<AnswerMessage> | Error;
}

/** A model call under way, and what the service does about it. */
export class OpenCall {
  readonly stream: AnswerStream;
  #settle: ((answer: AnswerMessage | Error) => void) | undefined;

  constructor(
    readonly sent: Headers,
    private readonly options: StreamOptions | undefined,
    private readonly given: ModelCall,
  ) {
    const result = new Promise<AnswerMessage>((resolve, reject) => {
      this.#settle = (answer) => {
        if (answer instanceof Error) reject(answer);
        else resolve(answer);
      };
    });
    this.stream = { result: () => result };
  }

  /** The head of the response comes. */
  async respond(): Promise<void> {
    const response: ModelResponse = { status: this.given.status ?? 200, headers: responseHeaders(this.given) };
    await this.options?.onResponse?.(response, undefined as never);
  }

  /** The answer is complete, or fails. */
  async finish(answer = this.given.answer): Promise<void> {
    const fine = { content: [{ type: "text", text: "Fine." }], stopReason: "stop" };
    this.#settle?.(answer instanceof Error ? answer : { ...fine, ...answer });
    await settled();
  }
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
    const call = await this.begin(given);
    await call.respond();
    await call.finish();
    return call.sent;
  }

  /** A model call that waits for its response and its answer, so that something can happen meanwhile. */
  async begin(given: ModelCall = {}): Promise<OpenCall> {
    let call: OpenCall | undefined;
    const inner: StreamFn = (model, _context, options) => {
      call = new OpenCall({ ...model.headers, ...options?.headers }, options, given);
      return Promise.resolve(call.stream);
    };
    const context = { provider: "clawrl", streamFn: inner };
    const wrapped = given.simple
      ? this.provider?.wrapSimpleCompletionStreamFn(context)
      : this.provider?.wrapStreamFn(context);
    await (wrapped ?? inner)(
      {
        provider: given.provider ?? "clawrl",
        baseUrl: "http://127.0.0.1:1/v1",
        ...(given.modelHeaders ? { headers: given.modelHeaders } : {}),
      },
      { messages: given.messages ?? [{ role: "user", content: "hello" }] },
      given.options ?? { sessionId: "s1", requestId: "run-1:model:1" },
    );
    if (call === undefined) throw new Error("the call was not made");
    return call;
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
