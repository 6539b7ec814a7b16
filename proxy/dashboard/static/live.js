/** What screens read from the service, kept right by what happens there. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, onAway, onHappening } from "./api.js";

/** Happenings of this time (ms) lead to one request. */
const TOGETHER = 250;

/**
 * @template T
 * @typedef {{ data: T | null, error: Error | null, loading: boolean, reload: () => void }} Loaded
 */

/**
 * The answer of a path, read again when one of `kinds` happens, when the service comes back, and every `every` ms while
 * the page is seen. What was read stays until something newer has come.
 *
 * @template [T=any]
 * @param {string} path "" reads nothing
 * @param {{ kinds?: readonly string[], every?: number }} [options]
 * @returns {Loaded<T>}
 */
export function useData(path, { kinds = [], every = 0 } = {}) {
  const [state, setState] = useState(/** @type {{ of: string, data: any, error: Error | null, loading: boolean }} */ (empty(path)));
  const running = useRef(/** @type {AbortController | null} */ (null));
  const read = useCallback(() => {
    running.current?.abort();
    if (!path) return;
    const controller = new AbortController();
    running.current = controller;
    setState((/** @type {any} */ before) => (before.of === path ? { ...before, loading: true } : empty(path)));
    get(path, controller.signal).then(
      (data) => controller.signal.aborted || setState({ of: path, data, error: null, loading: false }),
      (error) => controller.signal.aborted || setState((/** @type {any} */ before) => ({ ...before, error, loading: false })),
    );
  }, [path]);
  useEffect(() => {
    read();
    return () => running.current?.abort();
  }, [read]);
  useHappenings(kinds, read);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && read(), every);
    return () => clearInterval(timer);
  }, [read, every]);
  const shown = state.of === path ? state : empty(path);
  return { data: shown.data, error: shown.error, loading: shown.loading, reload: read };
}

/** @param {string} path */
function empty(path) {
  return { of: path, data: null, error: null, loading: Boolean(path) };
}

/**
 * Call `react` after one of `kinds` (or a gap) has happened, once for several at a time.
 *
 * @param {readonly string[]} kinds
 * @param {(happenings: import("./api.js").Happening[]) => void} react
 */
export function useHappenings(kinds, react) {
  const wanted = kinds.join(" ");
  useEffect(() => {
    /** @type {import("./api.js").Happening[]} */
    let gathered = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const stop = onHappening((happening) => {
      if (happening.kind !== "again" && !wanted.split(" ").includes(happening.kind)) return;
      gathered.push(happening);
      timer ??= setTimeout(() => {
        const these = gathered;
        gathered = [];
        timer = undefined;
        react(these);
      }, TOGETHER);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [wanted, react]);
}

/** The time in Unix seconds, renewed every half minute. */
export function useNow() {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 30_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/**
 * Whether the service is away.
 *
 * @param {boolean} initial
 */
export function useAway(initial) {
  const [away, setAway] = useState(initial);
  useEffect(() => onAway(setAway), []);
  return away;
}

/**
 * An action with its progress: `run` starts it, `busy` while it runs, `said` what came of it in words.
 *
 * @returns {{ busy: boolean, said: string, failed: boolean, run: (action: () => Promise<string | void>) => Promise<void> }}
 */
export function useAction() {
  const [state, setState] = useState({ busy: false, said: "", failed: false });
  const run = useCallback(async (/** @type {() => Promise<string | void>} */ action) => {
    setState({ busy: true, said: "", failed: false });
    try {
      setState({ busy: false, said: (await action()) ?? "", failed: false });
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      setState({ busy: false, said: words, failed: true });
    }
  }, []);
  return { ...state, run };
}
