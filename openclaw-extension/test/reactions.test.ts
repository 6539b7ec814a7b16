import { beforeEach, describe, expect, it } from "vitest";

import type { ChatMessage } from "../src/host.js";
import { toldReactions } from "../src/reactions.js";
import { FakeHost, forgetState } from "./fake-host.js";

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

/** The end of a request, as OpenClaw writes it: what the person says, then its own context. */
function told(...lines: string[]): ChatMessage[] {
  return [
    { role: "assistant", content: [{ type: "text", text: LINE.replace("41", "1") }] },
    { role: "user", content: "And now?" },
    { role: "user", content: [{ type: "text", text: `Conversation data:\n"${lines.join("\\n")}"` }] },
  ];
}

beforeEach(async () => {
  forgetState();
  host = new FakeHost();
  host.run(PERSON);
  await host.call({ turnId: "turn_a", answer: { content: [{ type: "text", text: "The **capital** is Oslo." }] } });
  await host.call({ turnId: "turn_b", answer: { content: [{ type: "text", text: "It has 700,000 people." }] } });
});

function sent(messageId: string, content: string, conversationId = "77"): void {
  host.fire("message_sent", { content, success: true, messageId }, { channelId: "telegram", conversationId });
}

async function reacted(...lines: string[]): Promise<string | undefined> {
  return (await host.call({ messages: told(...lines) }))["X-OpenClaw-Reactions"];
}

describe("reactions in a request", () => {
  it("are read from the messages after the last answer only", () => {
    expect(toldReactions(told(LINE, LINE.replace("41", "42")))).toEqual([
      { channel: "Telegram", messageId: "41" },
      { channel: "Telegram", messageId: "42" },
    ]);
    expect(toldReactions([{ role: "user", content: LINE }])).toHaveLength(1);
    expect(toldReactions([{ role: "user", content: null }])).toEqual([]);
  });
});

describe("the turn that a reaction means", () => {
  it("is named on the request that tells of it, not only the last one", async () => {
    sent("41", "The capital is Oslo.");
    sent("42", "It has 700,000 people.");
    expect(await reacted(LINE, LINE.replace("41", "42"))).toBe("41=turn_a;42=turn_b");
  });

  it("is found for a piece of an answer, and for an answer with something around it", async () => {
    sent("41", "The capital");
    sent("42", "[bot] It has 700,000 people. (1/1)");
    expect(await reacted(LINE, LINE.replace("41", "42"))).toBe("41=turn_a;42=turn_b");
  });

  it("is the last before it for a message without words", async () => {
    sent("41", "🎉");
    expect(await reacted(LINE)).toBe("41=turn_b");
  });

  it("is left to the service for a message that was not sent from here", async () => {
    sent("40", "The capital is Oslo.");
    expect(await reacted(LINE)).toBeUndefined();
  });

  it("is left to the service for words that no turn of the session has", async () => {
    sent("41", "Backup done.");
    expect(await reacted(LINE)).toBeUndefined();
  });

  it("is not taken from another chat with the same message number", async () => {
    sent("41", "It has 700,000 people.", "78");
    expect(await reacted(LINE)).toBeUndefined();
    sent("41", "The capital is Oslo.", "telegram:77");
    expect(await reacted(LINE)).toBe("41=turn_a");
  });

  it("is left to the service where two messages could be meant", async () => {
    host.run({ runId: "run-2", sessionId: "s1", trigger: "user" });
    sent("41", "The capital is Oslo.");
    sent("41", "It has 700,000 people.", "78");
    const options = { sessionId: "s1", requestId: "run-2:model:1" };
    expect((await host.call({ options, messages: told(LINE) }))["X-OpenClaw-Reactions"]).toBeUndefined();
  });

  it("is not taken from a message that was not delivered", async () => {
    const event = { content: "The capital is Oslo.", success: false, messageId: "41" };
    host.fire("message_sent", event, { channelId: "telegram", conversationId: "77" });
    expect(await reacted(LINE)).toBeUndefined();
  });
});
