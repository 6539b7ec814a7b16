// Two conversations with the openai package, in chat and in Responses: a question, two calls at once, their results, an
// answer. Reads {url, key, stream} as its argument; prints what it got, for the test to compare with what was captured.
import OpenAI from "openai";

const { url, key, stream } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const functionTool = { name: "read_file", description: "Read a file", parameters: schema };

async function chat(messages) {
  const body = {
    model: "policy", messages, tools: [{ type: "function", function: functionTool }], max_completion_tokens: 60,
  };
  if (!stream) return client.chat.completions.create(body);
  return client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion();
}

async function chatConversation() {
  const messages = [{ role: "user", content: `Node asks for both notes in chat. (${stream})` }];
  const first = await chat(messages);
  const said = first.choices[0].message;
  messages.push(said);
  for (const [number, call] of said.tool_calls.entries())
    messages.push({ role: "tool", tool_call_id: call.id, content: `butter ${number}` });
  const second = await chat(messages);
  return {
    ids: [first.id, second.id],
    calls: said.tool_calls.map((call) => JSON.parse(call.function.arguments).path),
    text: second.choices[0].message.content ?? "",
    usage: [second.usage.prompt_tokens, second.usage.completion_tokens],
  };
}

async function respond(input) {
  const body = {
    model: "policy", input, tools: [{ type: "function", ...functionTool, strict: false }], max_output_tokens: 60,
  };
  if (!stream) return client.responses.create(body);
  return client.responses.stream(body).finalResponse();
}

async function responsesConversation() {
  const input = [{ role: "user", content: `Node asks for both notes in Responses. (${stream})` }];
  const first = await respond(input);
  const calls = first.output.filter((item) => item.type === "function_call");
  input.push(...first.output);
  for (const [number, call] of calls.entries())
    input.push({ type: "function_call_output", call_id: call.call_id, output: `butter ${number}` });
  const second = await respond(input);
  return {
    ids: [first.id, second.id],
    calls: calls.map((call) => JSON.parse(call.arguments).path),
    text: second.output_text,
    usage: [second.usage.input_tokens, second.usage.output_tokens],
  };
}

async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code };
  }
  return null;
}

const refused = [
  await refusal(() => client.responses.create({ model: "policy@unknown", input: "Hello." })),
  await refusal(() => client.chat.completions.create({ model: "policy", messages: [] })),
];
console.log(JSON.stringify({ chat: await chatConversation(), responses: await responsesConversation(), refused }));
