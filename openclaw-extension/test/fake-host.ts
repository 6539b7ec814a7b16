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

/** A model call: the request, and the response to give. */
export interface ModelCall {
  options?: StreamOptions;
  simple?: boolean;
  modelHeaders?: Headers;
  /** Provider of the model; default: ours. */
  provider?: string;
  messages?: ChatMessage[];
  /** The service's turn id; `undefined`: a response without our headers. */
  turnId?: string;
  /** The service's classification; "": not in the response. */
  kind?: "main" | "side" | "";
  status?: number;
  answer?: Partial<AnswerMessage> | Error;
}

/** A model call in progress; the test plays the service. */
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

  /** Deliver status and headers of the response. */
  async respond(): Promise<void> {
    const response: ModelResponse = { status: this.given.status ?? 200, headers: responseHeaders(this.given) };
    await this.options?.onResponse?.(response, undefined as never);
  }

  /** Complete the answer, or make it fail. */
  async finish(answer = this.given.answer): Promise<void> {
    const fine = { content: [{ type: "text", text: "Fine." }], stopReason: "stop" };
    this.#settle?.(answer instanceof Error ? answer : { ...fine, ...answer });
    await settled();
  }
}

/** A stand-in for OpenClaw: registers the plug-in, calls hooks, makes model calls and runs commands. */
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

  /** Begin a run: fire the hooks that precede its first model call. */
  run(context: AgentContext): void {
    this.fire("before_model_resolve", { prompt: "hello" }, context);
    this.fire("before_prompt_build", { prompt: "hello", messages: [] }, context);
  }

  /** Make a model call, by default of a person's run `run-1` in session `s1`; returns the headers sent. */
  async call(given: ModelCall = {}): Promise<Headers> {
    const call = await this.begin(given);
    await call.respond();
    await call.finish();
    return call.sent;
  }

  /** Begin a model call; the test then delivers its response and its answer. */
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

/** Drop the state shared between registrations, as a new process would. */
export function forgetState(): void {
  for (const symbol of Object.getOwnPropertySymbols(globalThis)) {
    if (Symbol.keyFor(symbol)?.startsWith("openclaw-rl.")) Reflect.deleteProperty(globalThis, symbol);
  }
}

/** Let pending callbacks run. */
export async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

function responseHeaders(call: ModelCall): Headers {
  if (call.turnId === undefined) return {};
  const turn = { "x-openclaw-rl-turn": call.turnId };
  return call.kind === "" ? turn : { ...turn, "x-openclaw-rl-kind": call.kind ?? "main" };
}
