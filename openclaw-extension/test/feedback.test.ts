import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { sharedState } from "../src/state.js";
import { FakeHost, forgetState } from "./fake-host.js";
import { FakeService } from "./fake-service.js";

const KEY = "agent:main:main";
const PERSON = { runId: "run-1", sessionId: "s1", sessionKey: KEY, trigger: "user" };

let service: FakeService;
let host: FakeHost;

beforeEach(async () => {
  forgetState();
  service = await FakeService.start();
  host = new FakeHost({}, { url: service.url, apiKey: "KEY" });
  host.run(PERSON);
});

afterEach(() => service.stop());

const TOOL_CALL = { content: [{ type: "toolCall" }], stopReason: "toolUse" };

describe("/good and /bad", () => {
  it("rate the session's last main turn, with the comment", async () => {
    await host.call({ turnId: "turn_a" });
    await host.call({ turnId: "turn_b" });
    expect(await host.command("good", { args: " short and right " })).toBe("👍 recorded for my last answer.");
    expect(await host.command("bad")).toBe("👎 recorded for my last answer.");
    const [good, bad] = await service.got(2);
    expect(good?.path).toBe("/rl/feedback");
    expect(good?.headers.authorization).toBe("Bearer KEY");
    expect(good?.body).toMatchObject({
      session_id: "s1",
      turn_id: "turn_b",
      score: 1,
      text: "short and right",
      source: "command",
    });
    expect(bad?.body).toMatchObject({ turn_id: "turn_b", score: -1, text: "" });
    expect(good?.body["feedback_id"]).not.toBe(bad?.body["feedback_id"]);
  });

  it("rate the last answered main turn, even a tool call", async () => {
    await host.call({ turnId: "turn_answer" });
    await host.call({ turnId: "turn_tool", answer: TOOL_CALL });
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_tool");
  });

  it("rate the answer that completed last if turns overlap", async () => {
    const first = await host.begin({ turnId: "turn_first" });
    await first.respond();
    await host.call({ turnId: "turn_second" });
    await first.finish();
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_first");
  });

  it("rate a complete answer, not one in progress", async () => {
    await host.call({ turnId: "turn_a" });
    await (await host.begin({ turnId: "turn_b" })).respond();
    await host.command("bad");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
  });

  it("rate the last turn of a session that ended", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.command("good");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_a");
  });

  it("rate a turn of the current episode after a reset, even a tool call", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.call({ turnId: "turn_tool", answer: TOOL_CALL });
    await host.command("bad");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_tool");
  });

  it("ignore a turn of the previous episode that completed after the reset", async () => {
    const old = await host.begin({ turnId: "turn_old" });
    await old.respond();
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.call({ turnId: "turn_new" });
    await old.finish();
    await host.command("bad");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_new");
  });

  it("rate the last turn of a session that continues under another id", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    await host.command("good", { sessionId: "s2", sessionKey: undefined as never });
    expect((await service.got(2))[1]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("rate the chat's last conversation if OpenClaw makes up an id for the command", async () => {
    await host.call({ turnId: "turn_a" });
    await host.command("good", { sessionId: "never-used" });
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("leave the turn to the service if it is unknown here", async () => {
    await host.command("good");
    const [post] = await service.got(1);
    expect(post?.body["session_id"]).toBe("s1");
    expect(post?.body["turn_id"]).toBeUndefined();
  });

  it("find the session by its key", async () => {
    await host.call({ turnId: "turn_a" });
    await host.command("good", { sessionId: undefined as never });
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("report a missing session", async () => {
    const said = await host.command("good", { sessionId: undefined as never, sessionKey: "unknown" });
    expect(said).toMatch(/did not name a session/);
  });

  it("keep sessions apart", async () => {
    host.run({ ...PERSON, runId: "run-2", sessionId: "s2" });
    await host.call({ turnId: "turn_1" });
    await host.call({ turnId: "turn_2", options: { sessionId: "s2", requestId: "run-2:model:1" } });
    await host.command("good", { sessionId: "s1" });
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_1");
  });

  it("report why the service rejected them", async () => {
    service.answer = () => ({ status: 404, body: { error: { message: "Session 's1' has no answered main turn." } } });
    expect(await host.command("good")).toBe("👍 not recorded: Session 's1' has no answered main turn.");
    expect(sharedState().outbox.size).toBe(0);
  });

  it("are saved while the service is away", async () => {
    service.answer = () => ({ status: 503, body: { error: { message: "starting" } } });
    expect(await host.command("good", { args: "why" })).toMatch(/👍 saved: openclaw-rl does not answer \(starting\)/);
    service.answer = () => ({ status: 200, body: {} });
    expect(await host.command("bad")).toBe("👎 recorded for my last answer.");
    expect(service.received.slice(1).map((post) => post.body["score"])).toEqual([1, -1]);
  });

  it("answer soon even if the service hangs", async () => {
    service.answer = () => "silence";
    const began = performance.now();
    expect(await host.command("good")).toMatch(/saved/);
    expect(performance.now() - began).toBeLessThan(2_900);
  });

  it("report a missing address", async () => {
    forgetState();
    host = new FakeHost();
    expect(await host.command("good")).toMatch(/set url/);
  });

  it("use the address and key of the last request if none is configured", async () => {
    forgetState();
    host = new FakeHost();
    await host.call({ options: { sessionId: "s1", requestId: "run-1:model:1", apiKey: "OBSERVED" } });
    sharedState().observed.url = `${service.url}/v1`;
    await host.command("good");
    expect((await service.got(1))[0]?.headers.authorization).toBe("Bearer OBSERVED");
  });
});

describe("a command that quotes a message", () => {
  const telegram = { channelId: "telegram", conversationId: "77", sessionKey: KEY };

  beforeEach(async () => {
    await host.call({ turnId: "turn_a", answer: { content: [{ type: "text", text: "The **capital** is Oslo." }] } });
    await host.call({ turnId: "turn_b", answer: { content: [{ type: "text", text: "It has 700,000 people." }] } });
    host.fire("message_sent", { content: "The capital is Oslo.", success: true, messageId: "41" }, telegram);
    host.fire("message_sent", { content: "It has 700,000 people.", success: true, messageId: "42" }, telegram);
  });

  it("rates that message", async () => {
    host.fire("message_received", { content: "/bad no, Bergen", replyToId: "41" }, telegram);
    expect(await host.command("bad", { args: "no, Bergen" })).toBe("👎 recorded for the answer you quoted.");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
  });

  it("uses the quote once", async () => {
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    await host.command("bad");
    await host.command("good");
    expect((await service.got(2)).map((post) => post.body["turn_id"])).toEqual(["turn_a", "turn_b"]);
  });

  it("rates no other message if the quoted one is unknown, and says so", async () => {
    host.fire("message_received", { content: "/bad", replyToId: "7" }, telegram);
    expect(await host.command("bad")).toBe(
      "👎 not recorded: I do not know which answer you quoted. Send /bad without a quote to rate my last one.",
    );
    await host.command("good");
    expect((await service.got(1)).map((post) => post.body["score"])).toEqual([1]);
  });

  it("is distinguished from another at the same time", async () => {
    host.fire("message_received", { content: "/good", replyToId: "41" }, telegram);
    host.fire("message_received", { content: "/good@claw_bot nice number" }, telegram);
    host.fire("message_received", { content: "<@77> /bad", replyToId: "42" }, telegram);
    await host.command("good");
    await host.command("good", { args: "nice number" });
    await host.command("bad");
    expect((await service.got(3)).map((post) => post.body["turn_id"])).toEqual(["turn_a", "turn_b", "turn_b"]);
    await host.call({ turnId: "turn_c" });
    await host.command("bad");
    expect((await service.got(4))[3]?.body["turn_id"]).toBe("turn_c");
  });

  it("rates that message after a delay, but not if the command never ran", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    vi.setSystemTime(Date.now() + 20_000);
    await host.command("bad");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    vi.setSystemTime(Date.now() + 3_600_000);
    await host.command("bad"); // from the menu, without a message
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_b");
    vi.useRealTimers();
  });

  it("rates a message of the previous conversation", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    host.run({ ...PERSON, runId: "run-2", sessionId: "s2" });
    await host.call({ turnId: "turn_c", options: { sessionId: "s2", requestId: "run-2:model:1" } });
    host.fire("message_received", { content: "/good", replyToId: "41" }, telegram);
    await host.command("good", { sessionId: "s2" });
    expect((await service.got(2))[1]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("is not confused with a quote in an ordinary message", async () => {
    host.fire("message_received", { content: "what about this?", replyToId: "41" }, telegram);
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_b");
  });
});
