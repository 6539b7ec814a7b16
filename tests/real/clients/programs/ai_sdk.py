"""Vercel's AI SDK: `generateText` with a tool, over Chat Completions and over Responses."""

from __future__ import annotations

from tests.real.clients.client import NodeLibrary, Npm

PROGRAM = """
import { readFile } from "node:fs/promises";
import { generateText, stepCountIs, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";

const read = tool({
  description: "Read a file.",
  inputSchema: z.object({ path: z.string() }),
  execute: async ({ path }) => await readFile(path, "utf8"),
});
export async function* program(url, key, words) {
  const compatible = createOpenAICompatible({ name: "policy", baseURL: url, apiKey: key });
  const model = OVER_RESPONSES ? createOpenAI({ baseURL: url, apiKey: key })("policy") : compatible("policy");
  const messages = [];
  for await (const said of words) {
    messages.push({ role: "user", content: said });
    const done = await generateText({ model, messages, tools: { read }, stopWhen: stepCountIs(5) });
    for (const step of done.steps.slice(0, -1)) messages.push(...step.response.messages);
    messages.push(...done.response.messages);
    yield done.text;
  }
}
"""


class AISDK(NodeLibrary):
    """Over chat."""

    name = "ai_sdk"
    packages = Npm("ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/openai-compatible@3.0.92", "zod@4")
    program = PROGRAM.replace("OVER_RESPONSES", "false")


class AISDKResponses(AISDK):
    """Over Responses, its default OpenAI provider."""

    name = "ai_sdk_responses"
    environment = "ai_sdk"
    program = PROGRAM.replace("OVER_RESPONSES", "true")
