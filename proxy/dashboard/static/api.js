/**
 * The service, as the page talks to it: requests with the token, events as they come, and whether it is there at all.
 *
 * @typedef {{ kind: string, turn_id?: string, session_id?: string, version?: number, state?: string, name?: string }} Happening
 */

import { eventReader } from "./sse.js";
import { drop, token } from "./token.js";

/** The service sends at least a comment every 15 s: after this time without one the connection is dead. */
const SILENCE = 40_000;
/** Waits between attempts to reach a service that is away, in ms. */
const WAITS = [300, 600, 1200, 2000, 3000];

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status 0: the service could not be reached
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @type {Set<(happening: Happening) => void>} */
const listeners = new Set();
/** @type {Set<(away: boolean) => void>} */
const watchers = new Set();
let away = false;

/** @param {(happening: Happening) => void} listener also gets `{kind: "again"}` after a gap: read everything again */
export function onHappening(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** @param {(away: boolean) => void} watcher */
export function onAway(watcher) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

export function isAway() {
  return away;
}

/** @param {boolean} value */
function setAway(value) {
  if (away === value) return;
  away = value;
  for (const watcher of watchers) watcher(value);
}

/**
 * Send a request. Throws `ApiError`; a token that is refused is forgotten, which leads to the sign-in.
 *
 * @param {string} method
 * @param {string} path
 * @param {{ body?: object, headers?: Record<string, string>, signal?: AbortSignal }} [options]
 * @returns {Promise<Response>}
 */
export async function send(method, path, { body, headers = {}, signal } = {}) {
  const used = token()?.token ?? "";
  /** @type {RequestInit} */
  const init = { method, cache: "no-store", credentials: "omit", redirect: "error" };
  init.headers = { authorization: `Bearer ${used}`, ...(body ? { "content-type": "application/json" } : {}), ...headers };
  if (body) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  let answer;
  try {
    answer = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    setAway(true);
    throw new ApiError("", 0);
  }
  setAway(false);
  if (answer.ok) return answer;
  if (answer.status === 401 && token()?.token === used) drop();
  const failure = await answer.json().catch(() => null);
  throw new ApiError(failure?.error?.message ?? `HTTP ${answer.status}`, answer.status);
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return (await send("GET", path, signal ? { signal } : {})).json();
}

/**
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export async function post(path, body = {}) {
  return (await send("POST", path, { body })).json();
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function remove(path) {
  const text = await (await send("DELETE", path)).text();
  return text ? JSON.parse(text) : {};
}

/**
 * Follow what happens until `signal` ends it; a connection that is lost is made again and continues where it ended.
 *
 * @param {AbortSignal} signal
 */
export async function follow(signal) {
  let last = "";
  for (let failed = 0; !signal.aborted; ) {
    const before = last;
    try {
      await listen(signal, last, (id) => {
        failed = 0;
        last = id || last;
      });
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status === 401)) return;
    }
    if (before === last) failed += 1;
    await new Promise((resolve) => setTimeout(resolve, WAITS[Math.min(failed, WAITS.length) - 1] ?? WAITS[0]));
  }
}

/**
 * @param {AbortSignal} signal
 * @param {string} after
 * @param {(id: string) => void} heard
 */
async function listen(signal, after, heard) {
  const silent = new AbortController();
  const stop = () => silent.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE);
  try {
    const query = after ? `?after=${encodeURIComponent(after)}` : "";
    const headers = after ? { "last-event-id": after } : undefined;
    const answer = await send("GET", `/rl/events${query}`, { signal: silent.signal, ...(headers ? { headers } : {}) });
    heard("");
    tell({ kind: "again" });
    const read = eventReader();
    const decoder = new TextDecoder();
    const reader = answer.body?.getReader();
    for (let piece; reader && !(piece = await reader.read()).done; ) {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE);
      for (const { id, event, data } of read(decoder.decode(piece.value, { stream: true }))) {
        heard(id);
        tell({ ...JSON.parse(data), kind: event });
      }
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

/** @param {Happening} happening */
function tell(happening) {
  for (const listener of listeners) listener(happening);
}

/**
 * Chat with the policy, piece by piece.
 *
 * @param {{ model: string, messages: object[], session?: string, signal: AbortSignal, onText: (text: string) => void }} request
 *   without `session` nothing of it is kept
 * @returns {Promise<string>} the id of the answer
 */
export async function chat({ model, messages, session, signal, onText }) {
  /** @type {Record<string, string>} */
  const headers = session ? { "x-session-id": session } : { "x-rl-train": "never" };
  const answer = await send("POST", "/v1/chat/completions", { body: { model, messages, stream: true }, headers, signal });
  const read = eventReader();
  const decoder = new TextDecoder();
  const reader = answer.body?.getReader();
  let id = "";
  for (let piece; reader && !(piece = await reader.read()).done; ) {
    for (const { data } of read(decoder.decode(piece.value, { stream: true }))) {
      if (data === "[DONE]") continue;
      const part = JSON.parse(data);
      if (part.error) throw new ApiError(part.error.message, 200);
      id = part.id ?? id;
      const text = part.choices?.[0]?.delta?.content;
      if (text) onText(text);
    }
  }
  return id;
}
