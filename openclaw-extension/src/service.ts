/** One request to the openclaw-rl service. */
export interface Request {
  method: "GET" | "POST";
  url: string;
  apiKey: string | undefined;
  headers?: Record<string, string>;
  body?: unknown;
}

/** The result. `refused`: the service rejected the request; `unreachable`: a later attempt may succeed. */
export type Reply =
  | { kind: "done"; body: unknown }
  | { kind: "refused"; status: number; message: string }
  | { kind: "unreachable"; message: string; status?: number };

const RETRYABLE = new Set([408, 425, 429]);
const MAX_MESSAGE = 300;

/** Send a request to the service. Never throws; gives up after `timeout` milliseconds. */
export async function ask(request: Request, timeout: number): Promise<Reply> {
  try {
    const response = await fetch(request.url, {
      method: request.method,
      headers: {
        accept: "application/json",
        ...(request.body === undefined ? {} : { "content-type": "application/json" }),
        ...(request.apiKey === undefined ? {} : { authorization: `Bearer ${request.apiKey}` }),
        ...request.headers,
      },
      ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
      redirect: "error",
      signal: AbortSignal.timeout(timeout),
    });
    const body = parse(await response.text());
    if (response.ok) return { kind: "done", body };
    const { status } = response;
    const message = errorMessage(body) ?? `HTTP ${status}`;
    if (status >= 500 || RETRYABLE.has(status)) return { kind: "unreachable", message, status };
    return { kind: "refused", status, message };
  } catch (error) {
    return { kind: "unreachable", message: reason(error) };
  }
}

/** A field of a decoded JSON value; `undefined` if it is no object. */
export function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function errorMessage(body: unknown): string | undefined {
  const message = field(field(body, "error"), "message");
  return typeof message === "string" ? message.slice(0, MAX_MESSAGE) : undefined;
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== "" ? error.cause.message : error.message;
}
