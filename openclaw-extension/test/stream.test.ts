import { beforeEach, describe, expect, it } from "vitest";

import type { AnswerStream, ModelResponse, StreamFn } from "../src/host.js";
import { sharedState } from "../src/state.js";
import { FakeHost, forgetState } from "./fake-host.js";

const PERSON = {
  runId: "run-1",
  sessionId: "s1",
  sessionKey: "agent:main:main",
  agentId: "main",
  trigger: "user",
};

let host: FakeHost;

beforeEach(() => {
  forgetState();
  host = new FakeHost();
});

describe("a request of a person's run", () => {
  it("names session, turn type, run and agent", async () => {
    host.run(PERSON);
    expect(await host.call()).toEqual({
      "X-Turn-Type": "main",
      "X-Session-Id": "s1",
      "X-Run-Id": "run-1",
      "X-Agent-Id": "main",
      "X-OpenClaw-Session-Key": "agent:main:main",
      "X-OpenClaw-Trigger": "user",
    });
  });

  it("is known from either hook: with a fixed model OpenClaw leaves out the first", async () => {
    host.fire("before_prompt_build", {}, PERSON);
    expect((await host.call())["X-Turn-Type"]).toBe("main");
    host.fire("before_model_resolve", {}, { ...PERSON, runId: "run-2" });
    const headers = await host.call({ options: { requestId: "run-2:model:1" } });
    expect(headers["X-Session-Id"]).toBe("s1");
    expect(headers["X-Turn-Type"]).toBe("main");
  });

  it("keeps the headers it had", async () => {
    host.run(PERSON);
    const headers = await host.call({
      options: { sessionId: "s1", requestId: "run-1:model:1", headers: { traceparent: "00-1" } },
    });
    expect(headers["traceparent"]).toBe("00-1");
    expect(headers["X-Turn-Type"]).toBe("main");
  });

  it("does not replace headers that the user configured", async () => {
    host.run(PERSON);
    const headers = await host.call({ modelHeaders: { "x-turn-type": "side" } });
    expect(headers["x-turn-type"]).toBe("side");
    expect(headers["X-Turn-Type"]).toBeUndefined();
  });

  it("names the source of its input, if known", async () => {
    host.run({ ...PERSON, inputProvenance: { kind: "inter_session" } });
    const headers = await host.call();
    expect(headers["X-OpenClaw-Input"]).toBe("inter_session");
    expect(headers["X-Turn-Type"]).toBe("main");
  });

  it("omits values that are not valid in a header", async () => {
    host.run({ ...PERSON, sessionKey: "agent:main:gruppe-ü", agentId: "two\nlines" });
    const headers = await host.call({ options: { sessionId: "会话", requestId: "run-1:model:1" } });
    expect(Object.keys(headers).sort()).toEqual(["X-OpenClaw-Trigger", "X-Run-Id", "X-Turn-Type"]);
  });
});

describe("other requests", () => {
  it("of a heartbeat are side, and main where the settings say so", async () => {
    host.run({ ...PERSON, trigger: "heartbeat" });
    expect((await host.call())["X-Turn-Type"]).toBe("side");
    host = new FakeHost({}, { mainRuns: ["person", "heartbeat"] });
    expect((await host.call())["X-Turn-Type"]).toBe("main");
  });

  it("of a title are side", async () => {
    expect(await host.call({ simple: true, options: {} })).toEqual({ "X-Turn-Type": "side" });
  });

  it("of a compaction are side and name the session that is compacted", async () => {
    host.run(PERSON);
    const headers = await host.call({ options: { requestId: "s1:compaction:cmp-1:model:1" } });
    expect(headers).toEqual({ "X-Turn-Type": "side", "X-Session-Id": "s1" });
  });

  it("of a compaction that OpenClaw made up a name for are side, of no session", async () => {
    const headers = await host.call({ options: { requestId: "made-up:compaction:cmp-1:model:1" } });
    expect(headers).toEqual({ "X-Turn-Type": "side" });
  });

  it("of a compaction within a run are side and name the session of the run", async () => {
    host.run(PERSON);
    const headers = await host.call({ options: { requestId: "run-1:compaction:cmp-1:model:1" } });
    expect(headers).toMatchObject({ "X-Turn-Type": "side", "X-Session-Id": "s1", "X-Run-Id": "run-1" });
  });

  it("of a run that no hook announced have no turn type", async () => {
    expect(await host.call()).toEqual({ "X-Session-Id": "s1" });
  });

  it("of other providers are not touched", () => {
    const inner: StreamFn = () => ({}) as AnswerStream;
    expect(host.provider?.wrapStreamFn({ provider: "openai", streamFn: inner })).toBeUndefined();
    expect(host.provider?.wrapSimpleCompletionStreamFn({ provider: "openai", streamFn: inner })).toBeUndefined();
  });

  it("to a model of another provider are not touched, even after a fallback", async () => {
    host.run(PERSON);
    const options = { sessionId: "s1", requestId: "run-1:model:2", apiKey: "THEIRS" };
    expect(await host.call({ provider: "openai", options, turnId: "turn_a" })).toEqual({});
    expect(sharedState().observed).toEqual({});
    expect(sharedState().turns.of("s1")).toEqual([]);
  });

  it("without session tracking say the turn type only", async () => {
    host = new FakeHost({}, { sessionTracking: false });
    host.run(PERSON);
    expect(await host.call()).toEqual({ "X-Turn-Type": "main" });
  });
});

describe("a conversation that was compacted", () => {
  it("keeps its id at the service, however often OpenClaw changes it", async () => {
    host.run(PERSON);
    const end = { sessionKey: "agent:main:main", reason: "compaction" };
    host.fire("session_end", { ...end, sessionId: "s1", nextSessionId: "s2" }, {});
    host.fire("session_end", { ...end, sessionId: "s2", nextSessionId: "s3" }, {});
    host.run({ ...PERSON, runId: "run-2", sessionId: "s3" });
    const headers = await host.call({ options: { sessionId: "s3", requestId: "run-2:model:1" } });
    expect(headers["X-Session-Id"]).toBe("s1");
  });
});

describe("the answer", () => {
  it("is passed on unchanged, and so is the response", async () => {
    const answer: AnswerStream = { result: () => new Promise(() => undefined) };
    const seen: number[] = [];
    const inner: StreamFn = async (_model, _context, options) => {
      await options?.onResponse?.({ status: 200, headers: {} }, undefined as never);
      return answer;
    };
    const wrapped = host.provider?.wrapStreamFn({ provider: "clawrl", streamFn: inner });
    const stream = await wrapped?.({}, { messages: [] }, { onResponse: ({ status }) => void seen.push(status) });
    expect(stream).toBe(answer);
    expect(seen).toEqual([200]);
  });

  it("fails as it would without the plug-in", async () => {
    const inner: StreamFn = () => Promise.reject(new Error("connection refused"));
    const wrapped = host.provider?.wrapStreamFn({ provider: "clawrl", streamFn: inner });
    await expect(wrapped?.({}, { messages: [] })).rejects.toThrow("connection refused");
    await host.call({ answer: new Error("cut off") }); // an unhandled rejection would fail the test run
  });

  it("arrives even if the response has no headers", async () => {
    const inner: StreamFn = async (_model, _context, options) => {
      await options?.onResponse?.({ status: 200 } as ModelResponse, undefined as never);
      return { result: () => Promise.resolve({ content: [], stopReason: "stop" }) };
    };
    const wrapped = host.provider?.wrapStreamFn({ provider: "clawrl", streamFn: inner });
    expect((await (await wrapped?.({}, { messages: [] }))?.result())?.stopReason).toBe("stop");
  });

  it("arrives even if building the headers fails", async () => {
    const broken = { messages: undefined as never };
    const inner: StreamFn = (_model, context) => ({
      result: () => Promise.resolve({ content: [], stopReason: String(context === broken) }),
    });
    const wrapped = host.provider?.wrapStreamFn({ provider: "clawrl", streamFn: inner });
    const stream = await wrapped?.({}, broken, { sessionId: "s1" });
    expect((await stream?.result())?.stopReason).toBe("true");
    expect(host.logged.join()).toMatch(/without its headers/);
  });

  it("is recorded as the session's last main turn only if it is one", async () => {
    const { turns } = sharedState();
    host.run(PERSON);
    await host.call({ turnId: "turn_a" });
    await host.call({ turnId: "turn_side", kind: "side" });
    await host.call({ turnId: "turn_failed", status: 500 });
    await host.call({ turnId: "turn_cut", answer: { stopReason: "aborted" } });
    await host.call({ turnId: "turn_lost", answer: new Error("gone") });
    expect(turns.of("s1").map((turn) => turn.turnId)).toEqual(["turn_a"]);
  });

  it("is classified by OpenClaw's hooks if the service does not say", async () => {
    const { turns } = sharedState();
    host.run(PERSON);
    await host.call({ turnId: "turn_a", kind: "" });
    host.run({ ...PERSON, trigger: "heartbeat" });
    await host.call({ turnId: "turn_b", kind: "" });
    expect(turns.of("s1").map((turn) => turn.turnId)).toEqual(["turn_a"]);
  });
});

describe("the key of a request", () => {
  it("is kept for posts, a placeholder is not", async () => {
    const options = { sessionId: "s1", requestId: "run-1:model:1" };
    await host.call({ options: { ...options, apiKey: "KEY" } });
    await host.call({ options: { ...options, apiKey: "oc-sent-v2.AAAA.end" } });
    expect(sharedState().observed.apiKey).toBe("KEY");
  });
});

describe("registering again", () => {
  it("shares the state: OpenClaw registers several times in a process", async () => {
    host.run(PERSON);
    const second = new FakeHost();
    expect((await second.call())["X-Turn-Type"]).toBe("main");
  });
});
