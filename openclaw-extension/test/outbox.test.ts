import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { Outbox, withTimeout, type Post } from "../src/outbox.js";
import type { Reply, Request } from "../src/service.js";

const DONE: Reply = { kind: "done", body: {} };
const AWAY: Reply = { kind: "unreachable", message: "away" };

function post(name: string): Post {
  return { method: "POST", url: `http://h/${name}`, apiKey: undefined, sessionId: name, body: { name } };
}

describe("the outbox", () => {
  let sent: string[];
  let reply: Reply;
  let outbox: Outbox;

  beforeEach(() => {
    vi.useFakeTimers();
    sent = [];
    reply = DONE;
    outbox = new Outbox((request: Request) => {
      sent.push(request.url.slice("http://h/".length));
      return Promise.resolve(reply);
    });
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it("sends in order and returns the results", async () => {
    const replies = await Promise.all([outbox.post(post("a")), outbox.post(post("b"))]);
    expect(sent).toEqual(["a", "b"]);
    expect(replies).toEqual([DONE, DONE]);
    expect(outbox.size).toBe(0);
  });

  it("adds the age of a post at every attempt", async () => {
    const bodies: unknown[] = [];
    const late = new Outbox((request: Request) => {
      bodies.push(request.body);
      return Promise.resolve(bodies.length < 3 ? AWAY : DONE);
    });
    await late.post(post("a"));
    await vi.advanceTimersByTimeAsync(6_000);
    expect(bodies).toEqual([0, 1, 6].map((age_seconds) => ({ name: "a", age_seconds })));
  });

  it("keeps posts that reach no service, reports to all callers at once, and retries in order", async () => {
    reply = AWAY;
    expect(await Promise.all([outbox.post(post("a")), outbox.post(post("b"))])).toEqual([AWAY, AWAY]);
    expect(sent).toEqual(["a"]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(sent).toEqual(["a", "a"]);
    reply = DONE;
    await vi.advanceTimersByTimeAsync(5_000);
    expect(sent).toEqual(["a", "a", "a", "b"]);
    expect(outbox.size).toBe(0);
  });

  it("retries ever more rarely, and not for ever", async () => {
    reply = AWAY;
    await outbox.post(post("a"));
    await vi.advanceTimersByTimeAsync(59 * 60_000);
    expect(sent.length).toBeGreaterThan(50);
    expect(sent.length).toBeLessThan(70);
    await vi.advanceTimersByTimeAsync(3 * 60_000);
    expect(outbox.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("does not retry a refused post", async () => {
    reply = { kind: "refused", status: 404, message: "no" };
    expect(await outbox.post(post("a"))).toEqual(reply);
    expect(outbox.size).toBe(0);
  });

  it("keeps the latest hundred posts", async () => {
    reply = AWAY;
    for (let number = 0; number < 130; number += 1) void outbox.post(post(String(number)));
    await vi.advanceTimersByTimeAsync(0);
    expect(outbox.size).toBe(100);
    sent = [];
    reply = DONE;
    await outbox.flush();
    expect(sent[0]).toBe("30");
    expect(sent.at(-1)).toBe("129");
  });

  it("delays only the session of a post on which the service fails", async () => {
    const failing = new Outbox((request: Request) => {
      sent.push(request.url.slice("http://h/".length));
      const failure: Reply = { kind: "unreachable", message: "bug", status: 500 };
      return Promise.resolve(request.url.endsWith("a") ? failure : DONE);
    });
    const replies = [post("a"), { ...post("a2"), sessionId: "a" }, post("b")].map((one) => failing.post(one));
    expect((await Promise.all(replies)).map((one) => one.kind)).toEqual(["unreachable", "unreachable", "done"]);
    expect(sent).toEqual(["a", "b"]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(sent).toEqual(["a", "b", "a"]);
    expect(failing.size).toBe(2);
  });

  it("delays only posts to an address that does not answer", async () => {
    const moved = new Outbox((request: Request) => Promise.resolve(request.url.startsWith("http://h/") ? AWAY : DONE));
    const replies = [post("a"), { ...post("a"), url: "http://new/a" }].map((one) => moved.post(one));
    expect((await Promise.all(replies)).map((one) => one.kind)).toEqual(["unreachable", "done"]);
    expect(moved.size).toBe(1);
  });

  it("cancels posts", async () => {
    reply = AWAY;
    await Promise.all([outbox.post(post("a")), outbox.post(post("b"))]);
    outbox.cancel((one) => one.sessionId === "a");
    reply = DONE;
    await outbox.flush();
    expect(sent).toEqual(["a", "b"]);
  });

  it("survives a sender that throws", async () => {
    const thrown = new Outbox(() => {
      throw new Error("bug");
    });
    expect(await thrown.post(post("a"))).toMatchObject({ kind: "refused" });
    expect(thrown.size).toBe(0);
  });

  it("sends a post queued at the moment another one is resolved", async () => {
    await outbox.post(post("a")).then(() => outbox.post(post("b")));
    expect(sent).toEqual(["a", "b"]);
  });
});

describe("withTimeout", () => {
  it("waits for a promise, at most for the given time", async () => {
    expect(await withTimeout(Promise.resolve(1), 1_000, 2)).toBe(1);
    expect(await withTimeout(new Promise<number>(() => undefined), 1, 2)).toBe(2);
  });
});
