import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { describeStatus } from "../src/status.js";
import { FakeHost, forgetState } from "./fake-host.js";
import { FakeService } from "./fake-service.js";

const STATUS = {
  version: { live: 7, engine: 7 },
  training: "running",
  interactions: 40,
  backlog: { unjudged: 3, ready: 5, quarantined: {} },
  why_untrained: "",
};

let service: FakeService;

beforeEach(async () => {
  forgetState();
  service = await FakeService.start();
});

afterEach(() => service.stop());

function rl(): Promise<string> {
  return new FakeHost({}, { url: service.url, apiKey: "KEY" }).command("rl");
}

describe("/rl", () => {
  it("reports version, interactions since, backlog and last change", async () => {
    const last_change = { version: 7, time: Date.now() / 1000 - 840, interactions: 12 };
    service.answer = () => ({ status: 200, body: { ...STATUS, last_change } });
    expect(await rl()).toBe(
      "Version 7 is live; training is running.\n" +
        "12 interactions since the last change; 3 waiting for the judge, 5 ready for training.\n" +
        "Last change: version 7, 14 minutes ago.",
    );
    const [request] = await service.got(1);
    expect(request?.path).toBe("/rl/status");
    expect(request?.headers.authorization).toBe("Bearer KEY");
  });

  it("accepts the status of an older service", async () => {
    service.answer = () => ({ status: 200, body: STATUS });
    expect(await rl()).toBe(
      "Version 7 is live; training is running.\n" +
        "40 interactions so far; 3 waiting for the judge, 5 ready for training.",
    );
  });

  it("reports why nothing was trained yet", async () => {
    service.answer = () => ({ status: 200, body: { ...STATUS, why_untrained: "no answer has a reaction yet" } });
    expect(await rl()).toMatch(/Not trained yet: no answer has a reaction yet\.$/);
  });

  it("reports that the service does not answer", async () => {
    const host = new FakeHost({}, { url: service.url });
    await service.stop();
    expect(await host.command("rl")).toMatch(/openclaw-rl at http:\/\/127\.0\.0\.1:\d+ does not answer: /);
    service = await FakeService.start();
  });

  it("reports a wrong key", async () => {
    service.answer = () => ({ status: 401, body: { error: { message: "This key is not known." } } });
    expect(await rl()).toMatch(/refused: This key is not known\./);
  });

  it("accepts an answer that is not our format", async () => {
    service.answer = () => ({ status: 200, body: "<html>" });
    expect(await rl()).toMatch(/^Version \? is live/);
  });

  it("reports queued posts", async () => {
    service.answer = () => ({ status: 503, body: {} });
    const host = new FakeHost({}, { url: service.url });
    await host.command("good");
    expect(await host.command("rl")).toMatch(/1 message to the service waiting in OpenClaw\./);
  });

  it("names the missing permission if no hook announces runs", async () => {
    service.answer = () => ({ status: 200, body: STATUS });
    const host = new FakeHost({}, { url: service.url });
    for (let number = 0; number < 3; number += 1) await host.call();
    expect(await host.command("rl")).toMatch(/allowConversationAccess/);
    host.run({ runId: "run-1", trigger: "user" });
    await host.call();
    expect(await host.command("rl")).not.toMatch(/allowConversationAccess/);
  });

  it.each([
    [5, "just now"],
    [60, "1 minute ago"],
    [7_200, "2 hours ago"],
    [200_000, "2 days ago"],
  ])("formats %d seconds as %s", (seconds, words) => {
    expect(describeStatus({ last_change: { version: 1, time: 1_000_000 - seconds } }, 1_000_000).join()).toContain(
      words,
    );
  });
});

describe("invalid settings", () => {
  it("are reported in the chat and the log; chats continue as without the plug-in", async () => {
    const host = new FakeHost({}, { training_mode: "sync" });
    expect(host.provider).toBeUndefined();
    expect(host.hooks.size).toBe(0);
    for (const name of ["rl", "good", "bad"]) {
      expect(await host.command(name)).toMatch(/because of a setting: trainingMode is "sync"/);
    }
    expect(host.logged.join()).toMatch(/trainingMode is "sync"/);
    expect(await host.call()).toEqual({});
  });
});
