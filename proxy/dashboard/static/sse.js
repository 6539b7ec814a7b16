/**
 * Server-sent events, read from a stream of text in pieces of any size.
 *
 * @typedef {{ id: string, event: string, data: string }} ServerEvent
 */

/**
 * A reader: give it each piece of text, it returns the events that are complete with it. Comments are left out.
 *
 * @returns {(piece: string) => ServerEvent[]}
 */
export function eventReader() {
  let rest = "";
  let id = "";
  let event = "";
  /** @type {string[]} */
  let data = [];
  return (piece) => {
    /** @type {ServerEvent[]} */
    const complete = [];
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length) complete.push({ id, event: event || "message", data: data.join("\n") });
        event = "";
        data = [];
        continue;
      }
      const [, name = "", value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
      if (name === "id") id = value;
      else if (name === "event") event = value;
      else if (name === "data") data.push(value);
    }
    return complete;
  };
}
