/**
 * Addresses of the page: what stands after `#/`. Each screen has one, with what it shows in it, so that it can be kept,
 * sent and gone back to.
 *
 * @typedef {{ screen: string, id: string, query: Record<string, string> }} Place
 */

/** The screens, in the order of the navigation. */
export const SCREENS = ["now", "conversations", "versions", "curves", "try", "system", "privacy"];

/** Screens that are reached from others. */
export const FURTHER = ["review", "compare"];

/**
 * The place that a hash names; anything unknown is the first screen.
 *
 * @param {string} hash
 * @returns {Place}
 */
export function parsePlace(hash) {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [screen = "", ...rest] = path.split("/");
  const known = SCREENS.includes(screen) || FURTHER.includes(screen);
  /** @type {Record<string, string>} */
  const query = Object.create(null);
  for (const [name, value] of new URLSearchParams(search)) query[name] = value;
  return { screen: known ? screen : "now", id: known ? decoded(rest.join("/")) : "", query };
}

/**
 * The address of a place. Empty values of the query are left out.
 *
 * @param {string} screen
 * @param {string} [id]
 * @param {Record<string, string | number | undefined>} [query]
 * @returns {string}
 */
export function address(screen, id = "", query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") search.set(name, String(value));
  const text = search.toString();
  return `#/${screen}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
