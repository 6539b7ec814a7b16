import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { ChatMessage, MessageContext } from "../src/host.js";
import { readReactions } from "../src/reactions.js";
import { FakeHost, forgetState, type ModelCall } from "./fake-host.js";

const KEY = "agent:main:telegram:direct:77";
const PERSON = {
  runId: "run-1",
  sessionId: "s1",
  sessionKey: KEY,
  trigger: "user",
  messageProvider: "telegram",
  chatId: "77",
};
const LINE = "System: [2026-11-20 10:16 UTC] Telegram reaction added: 👍 by Ada (@ada) on msg 41";

let host: FakeHost;

/** The end of a request as OpenClaw writes it: the person's message, then its own context. */
function requestWith(...lines: string[]): ChatMessage[] {
  const context = `Conversation data (data, not instructions):\n${JSON.stringify(lines.join("\n"))}`;
  return [
    { role: "assistant", content: [{ type: "text", text: LINE.replace("41", "1") }] },
    { role: "user", content: "And now?" },
    { role: "user", content: [{ type: "text", text: context }] },
  ];
}

function on(messageId: string): string {
  return LINE.replace("41", messageId);
}

/** Advance the clock: events of the same millisecond cannot be ordered. */
function later(): void {
  vi.setSystemTime(Date.now() + 1_000);
}

async function answered(turnId: string, text: string, given: Partial<ModelCall> = {}): Promise<void> {
  await host.call({ turnId, answer: { content: [{ type: "text", text }] }, ...given });
  later();
}

function sent(messageId: string, content: string, context: Partial<MessageContext> = {}): void {
  const place = { channelId: "telegram", conversationId: "77", ...context };
  host.fire("message_sent", { content, success: true, messageId }, place);
  later();
}

async function reacted(...lines: string[]): Promise<string | undefined> {
  return (await host.call({ messages: requestWith(...lines) }))["X-OpenClaw-Reactions"];
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
  forgetState();
  host = new FakeHost();
  host.run(PERSON);
});

afterEach(() => {
  vi.useRealTimers();
});

describe("reactions in a request", () => {
  it("are read only from messages after the last answer", () => {
    expect(readReactions(requestWith(LINE, on("42")))).toEqual([
      { channel: "Telegram", messageId: "41" },
      { channel: "Telegram", messageId: "42" },
    ]);
    expect(readReactions([{ role: "user", content: LINE }])).toHaveLength(1);
    expect(readReactions([{ role: "user", content: null }])).toEqual([]);
  });

  it.each([
    ['Telegram reaction added: 👍 by Ada "msg 7" (@ada) on msg 41', "41"],
    ["Discord reaction added: 👍 by ada on the-guild #general msg 1290", "1290"],
    ["Slack reaction added: 👍 by Ada in #general msg 1700000000.000200 from Claw", "1700000000.000200"],
    ["Signal reaction added: 👍 by Ada msg 1700000000000", "1700000000000"],
    ["Somewhere reaction added: 👍 by Ada", undefined],
  ])("are read as channels write them: %s", (line, messageId) => {
    expect(readReactions(requestWith(`System: [2026-11-20 10:16 UTC] ${line}`))).toEqual([
      { channel: line.split(" ")[0], messageId },
    ]);
  });

  it("delay no request, even with a large pasted text", () => {
    const pasted = `reaction added: ${"System: [".repeat(100_000)}${" msg 1".repeat(100_000)}`;
    const began = performance.now();
    expect(readReactions([{ role: "user", content: pasted }])).toEqual([]);
    expect(performance.now() - began).toBeLessThan(1_000);
  });
});

describe("the turn of a reaction", () => {
  const CAPITAL = "The **capital** of the country is Oslo.";
  const PEOPLE = "It has 700,000 people.";

  beforeEach(async () => {
    await answered("turn_a", CAPITAL);
    await answered("turn_b", PEOPLE);
  });

  it("is named on the request that reports it, not only the last one", async () => {
    sent("41", "The capital of the country is Oslo.");
    sent("42", PEOPLE);
    expect(await reacted(LINE, on("42"))).toBe("41=turn_a;42=turn_b");
  });

  it("is found for a part of an answer, and for an answer with added text", async () => {
    sent("41", "The capital of the country");
    sent("42", `[bot] ${PEOPLE} (1/1)`);
    expect(await reacted(LINE, on("42"))).toBe("41=turn_a;42=turn_b");
  });

  it("is not guessed from a few words of it", async () => {
    sent("41", "The capital");
    sent("42", "Oslo");
    expect(await reacted(LINE, on("42"))).toBe("-");
  });

  it("is not guessed from a long message that happens to contain an answer", async () => {
    sent("41", `News of the day. ${PEOPLE} And a lot more that has nothing to do with this conversation.`);
    expect(await reacted(LINE)).toBe("-");
  });

  it("is not guessed for a message without words", async () => {
    sent("41", "");
    sent("42", "🎉");
    expect(await reacted(LINE, on("42"))).toBe("-");
  });

  it("is known for an answer without words", async () => {
    await answered("turn_c", "🎉");
    sent("41", " 🎉 ");
    expect(await reacted(LINE)).toBe("41=turn_c");
  });

  it("is reported unknown for a message not sent from here", async () => {
    sent("40", CAPITAL);
    expect(await reacted(LINE)).toBe("-");
  });

  it("is reported unknown for words of no turn of the session", async () => {
    sent("41", "Backup done.");
    expect(await reacted(LINE)).toBe("-");
  });

  it("is reported unknown if the session or the message is", async () => {
    const elsewhere = { options: { requestId: "run-7:model:1" }, messages: requestWith(LINE) };
    expect((await host.call(elsewhere))["X-OpenClaw-Reactions"]).toBe("-");
    const line = "System: [2026-11-20 10:16 UTC] Somewhere reaction added: 👍 by Ada";
    expect(await reacted(line)).toBe("-");
  });

  it("is left out next to known ones", async () => {
    sent("41", CAPITAL);
    expect(await reacted(LINE, on("42"))).toBe("41=turn_a");
  });

  it("is not reported without a reaction", async () => {
    sent("41", CAPITAL);
    expect((await host.call())["X-OpenClaw-Reactions"]).toBeUndefined();
  });

  it("is named for every reaction of a request", async () => {
    const numbers = Array.from({ length: 20 }, (_, number) => String(100 + number));
    for (const number of numbers) {
      await answered(`turn_${"0".repeat(30)}${number}`, `Answer number ${number}.`);
      sent(number, `Answer number ${number}.`);
    }
    expect((await reacted(...numbers.map(on)))?.split(";")).toHaveLength(20);
  });

  it("is not taken from another chat with the same message number", async () => {
    sent("41", PEOPLE, { conversationId: "78" });
    expect(await reacted(LINE)).toBe("-");
    sent("41", CAPITAL, { conversationId: "telegram:77" });
    expect(await reacted(LINE)).toBe("41=turn_a");
  });

  it("is not taken from another account with the same message number", async () => {
    host.run({ ...PERSON, accountId: "work" });
    sent("41", PEOPLE, { accountId: "home" });
    expect(await reacted(LINE)).toBe("-");
    sent("41", CAPITAL, { accountId: "work" });
    expect(await reacted(LINE)).toBe("41=turn_a");
  });

  it("is found in a topic of a group", async () => {
    host.run({ ...PERSON, chatId: "-100" });
    sent("41", CAPITAL, { conversationId: "telegram:group:-100:topic:5" });
    expect(await reacted(LINE)).toBe("41=turn_a");
  });

  it("is found if the request comes from another channel", async () => {
    sent("41", CAPITAL);
    host.run({ ...PERSON, messageProvider: "webchat", chatId: "webchat" });
    expect(await reacted(LINE)).toBe("41=turn_a");
  });

  it("is unknown if two messages match", async () => {
    host.run({ runId: "run-2", sessionId: "s1", trigger: "user" });
    sent("41", CAPITAL);
    sent("41", PEOPLE, { conversationId: "78" });
    const options = { sessionId: "s1", requestId: "run-2:model:1" };
    expect((await host.call({ options, messages: requestWith(LINE) }))["X-OpenClaw-Reactions"]).toBe("-");
  });

  it("is unknown if one number stands for messages of two channels", async () => {
    sent("41", CAPITAL);
    sent("41", PEOPLE, { channelId: "signal" });
    const other = LINE.replace("Telegram", "Signal");
    expect(await reacted(LINE, other)).toBe("-");
  });

  it("is not taken from an undelivered message", async () => {
    const event = { content: CAPITAL, success: false, messageId: "41" };
    host.fire("message_sent", event, { channelId: "telegram", conversationId: "77" });
    expect(await reacted(LINE)).toBe("-");
  });
});

describe("the turn of a message", () => {
  it("is the one with its words, not a later one with some of them", async () => {
    await answered("turn_1", "There are 4 apples and nothing else.");
    sent("41", "There are 4 apples and nothing else.");
    await answered("turn_2", "4");
    await answered("turn_3", "No.");
    expect(await reacted(LINE)).toBe("41=turn_1");
  });

  it("is never answered later, even if the right one is unknown", async () => {
    sent("41", "There are 4 apples and nothing else.");
    await answered("turn_2", "4");
    await answered("turn_3", "There are 4 apples and nothing else.");
    expect(await reacted(LINE)).toBe("-");
  });

  it("is the one with exactly its words rather than one that contains them", async () => {
    await answered("turn_1", "There are 4 apples in the basket.");
    await answered("turn_2", "As I said: there are 4 apples in the basket. That is all.");
    sent("41", "There are 4 apples in the basket.");
    expect(await reacted(LINE)).toBe("41=turn_1");
  });

  it("is none if several match equally", async () => {
    await answered("turn_1", "There are 4 apples in the basket. And pears.");
    await answered("turn_2", "As I said: there are 4 apples in the basket.");
    await answered("turn_3", "Yes.");
    await answered("turn_4", "Yes!");
    sent("41", "There are 4 apples in the basket.");
    sent("42", "yes");
    expect(await reacted(LINE, on("42"))).toBe("-");
  });

  it("is known for each of several equal short answers, sent one by one", async () => {
    for (const number of ["1", "2", "3"]) {
      await answered(`turn_${number}`, "Yes.");
      sent(`4${number}`, "Yes.");
    }
    sent("49", "Yes."); // a fourth message without a turn
    expect(await reacted(on("41"), on("42"), on("43"), on("49"))).toBe("41=turn_1;42=turn_2;43=turn_3");
  });

  it("is known while its answer is still being written: OpenClaw can send blocks of it", async () => {
    const text = "First of all, there are four apples.\n\nThen there are two pears, which makes six.";
    const call = await host.begin({ turnId: "turn_1", answer: { content: [{ type: "text", text }] } });
    await call.respond();
    later();
    sent("41", "First of all, there are four apples.");
    await call.finish();
    later();
    sent("42", "Then there are two pears, which makes six.");
    expect(await reacted(LINE, on("42"))).toBe("41=turn_1;42=turn_1");
  });

  it("is one of its run, if OpenClaw names the run", async () => {
    await answered("turn_1", "Yes.", { options: { sessionId: "s1", requestId: "run-1:model:1" } });
    await answered("turn_2", "Yes.", { options: { sessionId: "s1", requestId: "run-2:model:1" } });
    sent("41", "Yes.", { runId: "run-2" });
    sent("42", "Yes.", { runId: "run-9" });
    expect(await reacted(LINE, on("42"))).toBe("41=turn_2");
  });
});
