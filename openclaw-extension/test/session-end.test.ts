import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { sharedState } from "../src/state.js";
import { FakeHost, forgetState } from "./fake-host.js";
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
  it.each(["new", "reset", "idle", "daily", "deleted", "shutdown", "unknown"])("is told for %s", async (reason) => {
    host.fire("session_end", { sessionId: "s1", sessionKey: "agent:main:main", reason }, {});
    const [post] = await service.got(1);
    expect(post?.method).toBe("POST");
    expect(post?.path).toBe("/rl/session-done");
    expect(post?.headers["x-session-id"]).toBe("s1");
    expect(post?.headers["x-session-done"]).toBe("true");
    expect(post?.headers.authorization).toBe("Bearer KEY");
    expect(post?.body).toMatchObject({ session_id: "s1", session_key: "agent:main:main", reason });
  });

  it("is told where OpenClaw gives no reason", async () => {
    host.fire("session_end", { sessionId: "s1" }, { sessionKey: "agent:main:main" });
    expect((await service.got(1))[0]?.body).toMatchObject({ reason: "unknown", session_key: "agent:main:main" });
  });

  it("names the next session, and says how long ago it was", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    const [post] = await service.got(1);
    expect(post?.body).toMatchObject({ next_session_id: "s2" });
    expect(post?.body["age_seconds"]).toBeGreaterThanOrEqual(0);
    expect(post?.body["age_seconds"]).toBeLessThan(60);
  });

  it("is told of the conversation's first id after a compaction", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "compaction", nextSessionId: "s2" }, {});
    host.fire("session_end", { sessionId: "s2", reason: "new" }, {});
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", reason: "new" });
  });

  it("goes in the body alone where the id fits no header", async () => {
    host.fire("session_end", { sessionId: "会话", reason: "new" }, {});
    const [post] = await service.got(1);
    expect(post?.body["session_id"]).toBe("会话");
    expect(post?.headers["x-session-id"]).toBeUndefined();
  });

  it.each(["compaction", "restart"])("is not what %s means", async (reason) => {
    host.fire("session_end", { sessionId: "s1", reason, nextSessionId: "s2" }, {});
    host.fire("session_end", { sessionId: "marker", reason: "new" }, {});
    expect((await service.got(1)).map((post) => post.body["session_id"])).toEqual(["marker"]);
  });

  it("is not told without session tracking", () => {
    host = new FakeHost({}, { url: service.url, sessionTracking: false });
    expect(host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {})).toBeUndefined();
    expect(sharedState().outbox.size).toBe(0);
  });
});

describe("a new conversation under the same id", () => {
  it("says so on its requests until it has an answer", async () => {
    host.run(PERSON);
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    expect((await host.call({ status: 503 }))["X-Session-New"]).toBe("reset");
    expect((await host.call({ turnId: "turn_b" }))["X-Session-New"]).toBe("reset");
    expect((await host.call({ turnId: "turn_c" }))["X-Session-New"]).toBeUndefined();
  });

  it("takes back the end of the one before, if that could not be told in time", async () => {
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
  it("waits until the ends of sessions are told", async () => {
    await host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {});
    expect(service.received).toHaveLength(1);
  });

  it("waits no longer than OpenClaw does, where the service hangs", async () => {
    service.answer = () => "silence";
    const began = performance.now();
    await host.fire("session_end", { sessionId: "s1", reason: "shutdown" }, {});
    await host.fire("gateway_stop", {});
    expect(performance.now() - began).toBeLessThan(6_000);
  });

  it("sends what still waits", async () => {
    service.answer = () => ({ status: 503, body: {} });
    host.fire("session_end", { sessionId: "s1", reason: "idle" }, {});
    await service.got(1);
    service.answer = () => ({ status: 200, body: {} });
    await host.fire("gateway_stop", {});
    expect(service.received).toHaveLength(2);
    expect(sharedState().outbox.size).toBe(0);
  });

  it("ends the conversations whose end OpenClaw does not tell, once", async () => {
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
