/**
 * The part of OpenClaw's plug-in API that this plug-in uses. `test/host-types.ts` compares these types with those of an
 * installed openclaw package.
 */

export type Headers = Record<string, string>;

/** One part of a message's content; the plug-in reads only text. */
export interface ContentPart {
  type: string;
  text?: string;
}

export interface ChatMessage {
  role: string;
  content?: unknown;
}

export interface ModelContext {
  messages: readonly ChatMessage[];
}

export interface Model {
  provider?: string;
  baseUrl?: string;
  headers?: Headers;
}

export interface ModelResponse {
  status: number;
  headers: Headers;
}

export interface StreamOptions {
  sessionId?: string;
  requestId?: string;
  apiKey?: string;
  headers?: Headers;
  onResponse?: (response: ModelResponse, model: never) => void | Promise<void>;
}

export interface AnswerMessage {
  content: readonly ContentPart[];
  stopReason: string;
}

export interface AnswerStream {
  result(): Promise<AnswerMessage>;
}

/**
 * A model call. Declared as a method, because method parameters are bivariant: OpenClaw's own function, which takes a
 * wider model and context, is then assignable. A wrapper must pass its arguments on unchanged.
 */
export type StreamFn<Stream extends AnswerStream = AnswerStream> = {
  call(model: Model, context: ModelContext, options?: StreamOptions): Stream | Promise<Stream>;
}["call"];

export interface WrapContext<Stream extends AnswerStream = AnswerStream> {
  provider: string;
  streamFn?: StreamFn<Stream>;
}

export interface Provider {
  id: string;
  label: string;
  auth: [];
  wrapStreamFn<Stream extends AnswerStream>(context: WrapContext<Stream>): StreamFn<Stream> | undefined;
  wrapSimpleCompletionStreamFn<Stream extends AnswerStream>(context: WrapContext<Stream>): StreamFn<Stream> | undefined;
}

/** Origin of an agent run. Every field may be missing. */
export interface AgentContext {
  runId?: string;
  sessionId?: string;
  sessionKey?: string;
  agentId?: string;
  /** `user`, `heartbeat`, `cron`, `memory`, `overflow` or `manual`. */
  trigger?: string;
  inputProvenance?: { kind: string };
  messageProvider?: string;
  accountId?: string;
  chatId?: string;
}

export interface SessionEndEvent {
  sessionId: string;
  sessionKey?: string;
  reason?: string;
  nextSessionId?: string;
}

export interface GatewayStopEvent {
  reason?: string;
}

export interface MessageContext {
  channelId: string;
  accountId?: string;
  conversationId?: string;
  sessionKey?: string;
  runId?: string;
}

export interface MessageReceivedEvent {
  content: string;
  replyToId?: string;
  sessionKey?: string;
}

export interface MessageSentEvent {
  content: string;
  success: boolean;
  messageId?: string;
  sessionKey?: string;
  runId?: string;
}

/** The registered hooks and their handlers. None of them changes anything in OpenClaw. */
export interface Hooks {
  before_model_resolve: (event: unknown, context: AgentContext) => void;
  before_prompt_build: (event: unknown, context: AgentContext) => void;
  message_received: (event: MessageReceivedEvent, context: MessageContext) => void;
  message_sent: (event: MessageSentEvent, context: MessageContext) => void;
  session_end: (event: SessionEndEvent, context: { sessionKey?: string }) => Promise<void> | void;
  gateway_stop: (event: GatewayStopEvent) => Promise<void>;
}

/** Overloads instead of one generic signature: only to these is OpenClaw's own type, with more hooks, assignable. */
export interface On {
  (name: "before_model_resolve", handler: Hooks["before_model_resolve"]): void;
  (name: "before_prompt_build", handler: Hooks["before_prompt_build"]): void;
  (name: "message_received", handler: Hooks["message_received"]): void;
  (name: "message_sent", handler: Hooks["message_sent"]): void;
  (name: "session_end", handler: Hooks["session_end"]): void;
  (name: "gateway_stop", handler: Hooks["gateway_stop"]): void;
}

export interface CommandContext {
  channel: string;
  sessionId?: string;
  sessionKey?: string;
  args?: string;
}

export interface Command {
  name: string;
  description: string;
  acceptsArgs?: boolean;
  handler(context: CommandContext): Promise<{ text: string }>;
}

export interface Logger {
  debug?: (message: string) => void;
  warn: (message: string) => void;
  error: (message: string) => void;
}

/** The part of `openclaw.json` that the plug-in reads. */
export interface HostConfig {
  models?: { providers?: Record<string, { baseUrl?: string; apiKey?: unknown } | undefined> };
}

export interface HostApi {
  config: HostConfig;
  pluginConfig?: Record<string, unknown>;
  logger: Logger;
  on: On;
  registerProvider(provider: Provider): void;
  registerCommand(command: Command): void;
}
