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
  it("go to the session's last main turn, with the words", async () => {
    await host.call({ turnId: "turn_a" });
    await host.call({ turnId: "turn_b" });
    expect(await host.command("good", { args: " short and right " })).toBe("👍 noted for my last answer.");
    expect(await host.command("bad")).toBe("👎 noted for my last answer.");
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

  it("mean the last main turn that was answered, be it a tool call", async () => {
    await host.call({ turnId: "turn_answer" });
    await host.call({ turnId: "turn_tool", answer: TOOL_CALL });
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_tool");
  });

  it("mean the one whose answer was complete last, where turns overlap", async () => {
    const first = await host.begin({ turnId: "turn_first" });
    await first.respond();
    await host.call({ turnId: "turn_second" });
    await first.finish();
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_first");
  });

  it("mean an answer that was complete, not one that is being written", async () => {
    await host.call({ turnId: "turn_a" });
    await (await host.begin({ turnId: "turn_b" })).respond();
    await host.command("bad");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
  });

  it("after the end of a session mean its last turn", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.command("good");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_a");
  });

  it("after a reset mean a turn of the present episode, be it a tool call", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.call({ turnId: "turn_tool", answer: TOOL_CALL });
    await host.command("bad");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_tool");
  });

  it("are not about a turn of the episode before that was complete only after the reset", async () => {
    const old = await host.begin({ turnId: "turn_old" });
    await old.respond();
    host.fire("session_end", { sessionId: "s1", reason: "reset" }, {});
    await host.call({ turnId: "turn_new" });
    await old.finish();
    await host.command("bad");
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_new");
  });

  it("after the end of a session that goes on under another id mean its last turn", async () => {
    await host.call({ turnId: "turn_a" });
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    await host.command("good", { sessionId: "s2", sessionKey: undefined as never });
    expect((await service.got(2))[1]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("go to the last conversation of the chat where OpenClaw makes up an id for the command", async () => {
    await host.call({ turnId: "turn_a" });
    await host.command("good", { sessionId: "never-used" });
    expect((await service.got(1))[0]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("leave the turn to the service where it is not known here", async () => {
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

  it("say so where there is no session", async () => {
    const said = await host.command("good", { sessionId: undefined as never, sessionKey: "unknown" });
    expect(said).toMatch(/does not say which session/);
  });

  it("keep sessions apart", async () => {
    host.run({ ...PERSON, runId: "run-2", sessionId: "s2" });
    await host.call({ turnId: "turn_1" });
    await host.call({ turnId: "turn_2", options: { sessionId: "s2", requestId: "run-2:model:1" } });
    await host.command("good", { sessionId: "s1" });
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_1");
  });

  it("say why the service did not take them", async () => {
    service.answer = () => ({ status: 404, body: { error: { message: "Session 's1' has no answered main turn." } } });
    expect(await host.command("good")).toBe("👍 not taken: Session 's1' has no answered main turn.");
    expect(sharedState().outbox.size).toBe(0);
  });

  it("are kept while the service is away", async () => {
    service.answer = () => ({ status: 503, body: { error: { message: "starting" } } });
    expect(await host.command("good", { args: "why" })).toMatch(/👍 kept: openclaw-rl is away \(starting\)/);
    service.answer = () => ({ status: 200, body: {} });
    expect(await host.command("bad")).toBe("👎 noted for my last answer.");
    expect(service.received.slice(1).map((post) => post.body["score"])).toEqual([1, -1]);
  });

  it("answer soon, also where the service hangs", async () => {
    service.answer = () => "silence";
    const began = performance.now();
    expect(await host.command("good")).toMatch(/kept/);
    expect(performance.now() - began).toBeLessThan(2_900);
  });

  it("say what is missing where no address is known", async () => {
    forgetState();
    host = new FakeHost();
    expect(await host.command("good")).toMatch(/set url/);
  });

  it("use the address and key of the last request where none is configured", async () => {
    forgetState();
    host = new FakeHost();
    await host.call({ options: { sessionId: "s1", requestId: "run-1:model:1", apiKey: "SHOWN" } });
    sharedState().shown.url = `${service.url}/v1`;
    await host.command("good");
    expect((await service.got(1))[0]?.headers.authorization).toBe("Bearer SHOWN");
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

  it("means that message", async () => {
    host.fire("message_received", { content: "/bad no, Bergen", replyToId: "41" }, telegram);
    expect(await host.command("bad", { args: "no, Bergen" })).toBe("👎 noted for the answer you quoted.");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
  });

  it("means it once", async () => {
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    await host.command("bad");
    await host.command("good");
    expect((await service.got(2)).map((post) => post.body["turn_id"])).toEqual(["turn_a", "turn_b"]);
  });

  it("is about no other message where the quoted one is not known, and says so", async () => {
    host.fire("message_received", { content: "/bad", replyToId: "7" }, telegram);
    expect(await host.command("bad")).toBe(
      "👎 not taken: which answer you quote is not known here. Without a quote /bad is about my last.",
    );
    await host.command("good");
    expect((await service.got(1)).map((post) => post.body["score"])).toEqual([1]);
  });

  it("is told apart from another of the same moment", async () => {
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

  it("means that message also where OpenClaw takes its time, not where the command was never run", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    vi.setSystemTime(Date.now() + 20_000);
    await host.command("bad");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_a");
    host.fire("message_received", { content: "/bad", replyToId: "41" }, telegram);
    vi.setSystemTime(Date.now() + 3_600_000);
    await host.command("bad"); // of the menu, where no message comes in
    expect((await service.got(2))[1]?.body["turn_id"]).toBe("turn_b");
    vi.useRealTimers();
  });

  it("means a message of the conversation before", async () => {
    host.fire("session_end", { sessionId: "s1", reason: "daily", nextSessionId: "s2" }, {});
    host.run({ ...PERSON, runId: "run-2", sessionId: "s2" });
    await host.call({ turnId: "turn_c", options: { sessionId: "s2", requestId: "run-2:model:1" } });
    host.fire("message_received", { content: "/good", replyToId: "41" }, telegram);
    await host.command("good", { sessionId: "s2" });
    expect((await service.got(2))[1]?.body).toMatchObject({ session_id: "s1", turn_id: "turn_a" });
  });

  it("is not mistaken for a quote in other words", async () => {
    host.fire("message_received", { content: "what about this?", replyToId: "41" }, telegram);
    await host.command("good");
    expect((await service.got(1))[0]?.body["turn_id"]).toBe("turn_b");
  });
});
