/**
 * Turns of a conversation as the page shows them.
 *
 * @typedef {{ role: string, text: string, folded: boolean, images: number, cut?: number,
 *   tool_calls?: ToolCall[] }} NewMessage
 * @typedef {{ name: string, arguments: unknown }} ToolCall
 * @typedef {{ turn_id: string, parent: string | null, episode: number, kind: string, reason: string, time: number,
 *   new_messages: NewMessage[], answer: { text: string, reasoning: string, tool_calls: ToolCall[] }, version: number[],
 *   score: number | null, judged_by: string, hint: string | null, advantage: number | null, state: string,
 *   versions: number[], status?: string, review?: boolean, excluded: boolean,
 *   feedback: { score: number | null, text: string, source: string, time: number }[] }} Item
 */

/**
 * The turns with their earlier tries: turns that continue the same answer with the same words are one place, shown by
 * the newest of them.
 *
 * @param {readonly Item[]} items
 * @returns {{ item: Item, earlier: Item[] }[]}
 */
export function branches(items) {
  /** @type {{ item: Item, earlier: Item[] }[]} */
  const places = [];
  /** @type {Map<string, { item: Item, earlier: Item[] }>} */
  const byWords = new Map();
  for (const item of items) {
    const key = JSON.stringify([item.parent, item.episode, item.kind, item.new_messages.map((one) => [one.role, one.text])]);
    const before = byWords.get(key);
    if (before) {
      before.earlier.push(before.item);
      before.item = item;
      continue;
    }
    const place = { item, earlier: /** @type {Item[]} */ ([]) };
    byWords.set(key, place);
    places.push(place);
  }
  return places;
}

/**
 * Pages of a transcript with one renewed: what is new replaces what was there under the same id, and the order stays.
 *
 * @param {readonly Item[]} before
 * @param {readonly Item[]} read
 * @returns {Item[]}
 */
export function merged(before, read) {
  const renewed = new Map(read.map((item) => [item.turn_id, item]));
  const kept = before.map((item) => {
    const found = renewed.get(item.turn_id);
    renewed.delete(item.turn_id);
    return found ?? item;
  });
  return [...kept, ...renewed.values()];
}

/**
 * The arguments of a tool call as text.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function argumentText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
