import { expect, it } from "vitest";

import { Bounded } from "../src/bounded.js";

it("a bounded map forgets what was written longest ago", () => {
  const map = new Bounded<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  map.set("a", 3);
  map.set("c", 4);
  expect(map.get("b")).toBeUndefined();
  expect(map.latest()).toEqual([4, 3]);
  expect(map.size).toBe(2);
});
