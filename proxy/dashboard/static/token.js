/**
 * The token of this browser: exchanged for a ticket or a key, kept for the tab (or, if asked for, for a week), and
 * handed to further tabs of the same page. It is never in an address or a cookie.
 *
 * @typedef {{ token: string, expires: number, owner: string }} Token
 */

const NAME = "openclaw-rl-token";
const STAY = "openclaw-rl-stay";
/** A new tab waits this long (ms) for an open one to hand over its token. */
const WAIT = 250;

/** @type {Token | null} */
let current = null;
/** @type {Set<() => void>} */
const listeners = new Set();
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(NAME);

channel?.addEventListener("message", (event) => {
  if (event.data === "ask" && current) channel.postMessage({ given: current });
  else if (event.data === "out") hold(null);
  else if (event.data?.given && !current) hold(valid(event.data.given), false);
});

/** @returns {Token | null} */
export function token() {
  return current;
}

/** @param {() => void} listener */
export function onToken(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * The token that this tab or this browser has kept, or one from another tab.
 *
 * @returns {Promise<Token | null>}
 */
export async function findToken() {
  for (const store of [sessionStorage, localStorage]) {
    const kept = valid(parsed(store.getItem(NAME)));
    if (kept) {
      hold(kept, store === localStorage);
      return kept;
    }
  }
  channel?.postMessage("ask");
  await new Promise((resolve) => setTimeout(resolve, channel ? WAIT : 0));
  return current;
}

/**
 * The ticket in the address, which is taken out of it at once.
 *
 * @returns {string}
 */
export function takeTicket() {
  const ticket = /^#ticket=([^&]+)/.exec(location.hash)?.[1] ?? "";
  if (ticket) history.replaceState(null, "", `${location.pathname}#/now`);
  return ticket;
}

/**
 * @param {{ ticket: string } | { key: string }} proof
 * @param {boolean} stay keep it for a week, in this browser
 * @returns {Promise<Token>} throws an `Error` with the service's words
 */
export async function signIn(proof, stay) {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify(stay ? { ...proof, stay: true } : proof);
  const answer = await fetch("/rl/dashboard/token", { method: "POST", headers, body, cache: "no-store" });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found?.error?.message ?? `HTTP ${answer.status}`);
  hold(found, stay);
  if (stay) localStorage.setItem(STAY, "1");
  return found;
}

/** Whether sign-ins of this browser outlast its tabs. */
export function stays() {
  return localStorage.getItem(STAY) !== null;
}

/** @param {boolean} stay this sign-in until it ends, later ones for a week */
export function setStays(stay) {
  if (stay) localStorage.setItem(STAY, "1");
  else localStorage.removeItem(STAY);
  hold(current, stay);
}

/** Revoke the token and forget it in all tabs. */
export async function signOut() {
  const old = current;
  drop();
  channel?.postMessage("out");
  if (old) {
    await fetch("/rl/dashboard/token", { method: "DELETE", headers: { authorization: `Bearer ${old.token}` } }).catch(() => null);
  }
}

/** Forget the token, which the service does not take any more. */
export function drop() {
  hold(null);
}

/**
 * @param {Token | null} found
 * @param {boolean} [stay]
 */
function hold(found, stay = false) {
  current = found;
  sessionStorage.removeItem(NAME);
  if (!found || stay) localStorage.removeItem(NAME);
  if (found) (stay ? localStorage : sessionStorage).setItem(NAME, JSON.stringify(found));
  for (const listener of listeners) listener();
}

/** @param {string | null} text */
function parsed(text) {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return null;
  }
}

/**
 * @param {any} found
 * @returns {Token | null}
 */
function valid(found) {
  return typeof found?.token === "string" && found.expires * 1000 > Date.now() ? found : null;
}
