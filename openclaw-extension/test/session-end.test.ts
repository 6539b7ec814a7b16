import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { sharedState } from "../src/state.js";
import { FakeHost, forgetState, type ModelCall } from "./fake-host.js";
import { FakeService } from "./fake-service.js";

const PERSON = { runId: "run-1", sessionId: "s1", sessionKey: "agent:main:main", trigger: "user" };

let service: FakeService;
let host: FakeHost;

beforeEach(async () => {
  forgetState();
  service = await FakeService.start();
  host = new FakeHost({ models: { providers: { clawrl: { baseUrl: `${service.url}/v1`, apiKey: "KEY" } } } });
});

afterEach(() => service.stop());

describe("the end of a session", () => {
  it.each(["new", "reset", "idle", "daily", "deleted", "shutdown", "unknown"])("is reported for %s", async (reason) => {
    host.fire("session_end", { sessionId: "s1", sessionKey: "agent:main:main", reason }, {});
    const [post] = await service.got(1);
    expect(post?.method).toBe("POST");
    expect(post?.path).toBe("/rl/session-done");
    expect(post?.headers["x-session-id"]).toBe("s1");
    expect(post?.headers["x-session-done"]).toBe("true");
    expect(post?.headers.authorization).toBe("Bearer KEY");
    expect(post?.body).toMatchObject({ session_id: "s1", session_key: "agent:main:main", reason });
  });

  it("is reported if OpenClaw gives no reason", async () => {
    host.fire("session_end", { sessionId: "s1" }, { sessionKey: "agent:main:main" });
    expect((await service.got(1))[0]?.body).toMatchObject({ reason: "unknown", session_key: "agent:main:main" });
  });

  it("names the next session and its own age", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    const [post] = await service.got(1);
    expect(post?.body).toMatchObject({ next_session_id: "s2" });
    expect(post?.body["age_seconds"]).toBeGreaterThanOrEqual(0);
    expect(post?.body["age_seconds"]).toBeLessThan(60);
  });

  it("is reported under the first id after a compaction", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "compaction", nextSessionId: "s2" }, {});
    host.fire("session_end", { sessionId: "s2", reason: "new" }, {});
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", reason: "new" });
  });

  it("is only in the body if the id is not valid in a header", async () => {
    host.fire("session_end", { sessionId: "会话", reason: "new" }, {});
    const [post] = await service.got(1);
    expect(post?.body["session_id"]).toBe("会话");
    expect(post?.headers["x-session-id"]).toBeUndefined();
  });

  it.each(["compaction", "restart"])("is not reported for %s", async (reason) => {
    host.fire("session_end", { sessionId: "s1", reason, nextSessionId: "s2" }, {});
    host.fire("session_end", { sessionId: "marker", reason: "new" }, {});
    expect((await service.got(1)).map((post) => post.body["session_id"])).toEqual(["marker"]);
  });

  it("is not reported without session tracking", () => {
    host = new FakeHost({}, { url: service.url, sessionTracking: false });
    expect(host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {})).toBeUndefined();
    expect(sharedState().outbox.size).toBe(0);
  });
});

describe("a new conversation under the same id", () => {
  const isNew = async (given: ModelCall = {}): Promise<string | undefined> => (await host.call(given))["X-Session-New"];

  async function reset(): Promise<void> {
    host.run(PERSON);
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
  }

  it("is announced until a request is accepted", async () => {
    await reset();
    expect(await isNew({ status: 503 })).toBe("reset");
    expect(await isNew({ turnId: "turn_b" })).toBe("reset");
    expect(await isNew({ turnId: "turn_c" })).toBeUndefined();
  });

  it("is announced once, even through a proxy that removes our response headers", async () => {
    await reset();
    expect(await isNew()).toBe("reset");
    expect(await isNew()).toBeUndefined();
  });

  it("is announced once, even if the answer breaks off or its response is not reported", async () => {
    await reset();
    expect(await isNew({ turnId: "turn_b", answer: new Error("cut off") })).toBe("reset");
    expect(await isNew()).toBeUndefined();
    host.fire("session_end", { sessionId: "s1", reason: "new" }, {});
    const unseen = await host.begin();
    await unseen.finish();
    expect(unseen.sent["X-Session-New"]).toBe("new");
    expect(await isNew()).toBeUndefined();
  });

  it("is announced on one request at a time, and on the next if that one fails", async () => {
    await reset();
    const [first, second] = [await host.begin(), await host.begin()];
    expect([first.sent["X-Session-New"], second.sent["X-Session-New"]]).toEqual(["reset", undefined]);
    await second.finish(new Error("connection refused"));
    expect(await isNew({ status: 503 })).toBeUndefined();
    await first.finish(new Error("connection refused"));
    expect(await isNew()).toBe("reset");
  });

  it("is not announced after another of its requests was accepted: that would end it too", async () => {
    await reset();
    const first = await host.begin();
    await host.call({ turnId: "turn_b" });
    await first.finish(new Error("connection refused"));
    expect(await isNew()).toBeUndefined();
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", reason: "reset" });
  });

  it("is announced again if the service classified the request as side", async () => {
    await reset();
    expect(await isNew({ turnId: "turn_side", kind: "side" })).toBe("reset");
    expect(await isNew()).toBe("reset");
  });

  it("is announced again if the request could not be sent", async () => {
    await reset();
    const wrapped = host.provider?.wrapStreamFn({
      provider: "clawrl",
      streamFn: () => {
        throw new Error("no such model");
      },
    });
    const options = { sessionId: "s1", requestId: "run-1:model:1" };
    expect(() => wrapped?.({}, { messages: [] }, options)).toThrow("no such model");
    expect(await isNew()).toBe("reset");
  });

  it("is announced on a request of an unknown run, not on a side request", async () => {
    await reset();
    expect(await isNew({ simple: true, options: { sessionId: "s1" } })).toBeUndefined();
    expect(await isNew({ options: { sessionId: "s1", requestId: "unannounced:model:1" } })).toBe("reset");
  });

  it("is not begun by an answer to the previous one", async () => {
    service.answer = () => ({ status: 503, body: {} });
    host.run(PERSON);
    const old = await host.begin({ turnId: "turn_old" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await old.respond();
    await old.finish();
    expect(sharedState().outbox.size).toBe(1);
    expect(await isNew()).toBe("reset");
  });

  it("is announced if no address was known at the end of the previous one", async () => {
    forgetState();
    host = new FakeHost();
    host.run(PERSON);
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    expect(await isNew()).toBe("reset");
  });

  it("is announced by a reason that is valid in a header", async () => {
    host.run(PERSON);
    host.fire("session_end", { sessionId: "s1", reason: "" }, {});
    expect(await isNew()).toBe("unknown");
  });

  it("cancels the queued end of the previous one", async () => {
    service.answer = () => ({ status: 503, body: {} });
    host.run(PERSON);
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    host.fire("session_end", { sessionId: "s9", reason: "reset" }, {});
    await service.got(1);
    expect(sharedState().outbox.size).toBe(2);
    await host.call({ turnId: "turn_b" });
    expect(sharedState().outbox.size).toBe(1);
  });
});

describe("the end of the gateway", () => {
  it("waits until the ends of sessions are sent", async () => {
    await host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {});
    expect(service.received).toHaveLength(1);
  });

  it("waits no longer than OpenClaw if the service hangs", async () => {
    service.answer = () => "silence";
    const began = performance.now();
    await host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {});
    await host.fire("gateway_stop", {});
    expect(performance.now() - began).toBeLessThan(6_000);
  });

  it("sends the queued posts", async () => {
    service.answer = () => ({ status: 503, body: {} });
    host.fire("session_end", { sessionId: "s1", reason: "idle" }, {});
    await service.got(1);
    service.answer = () => ({ status: 200, body: {} });
    await host.fire("gateway_stop", {});
    expect(service.received).toHaveLength(2);
    expect(sharedState().outbox.size).toBe(0);
  });

  it("ends the conversations that OpenClaw does not end, once", async () => {
    host.run(PERSON);
    await host.call({ turnId: "turn_a" });
    await host.call({ turnId: "turn_b", options: { sessionId: "s2", requestId: "run-2:model:1" } });
    await host.fire("session_end", { sessionId: "s2", reason: "idle" }, {});
    await host.fire("gateway_stop", { reason: "gateway stopping" });
    await host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {});
    expect(service.received.map((post) => post.body)).toMatchObject([
      { session_id: "s2", reason: "idle" },
      { session_id: "s1", session_key: "agent:main:main", reason: "shutdown" },
    ]);
  });

  it.each(["gateway restarting", "plugin replacement", undefined])("ends no conversation for %s", async (reason) => {
    host.run(PERSON);
    await host.call({ turnId: "turn_a" });
    await host.fire("gateway_stop", reason === undefined ? {} : { reason });
    expect(service.received).toHaveLength(0);
  });
});
