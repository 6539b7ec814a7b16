import { describe, expect, it } from "vitest";

import { readSettings, serviceUrl } from "../src/settings.js";

const CONFIG = {
  models: { providers: { clawrl: { baseUrl: "http://127.0.0.1:30000/v1/", apiKey: "KEY" } } },
};

describe("settings", () => {
  it("come from the provider's entry if not set", () => {
    const settings = readSettings(undefined, CONFIG);
    expect(settings.url).toBe("http://127.0.0.1:30000");
    expect(settings.apiKey).toBe("KEY");
    expect(settings.sessionTracking).toBe(true);
    expect([...settings.mainRuns]).toEqual(["person", "agent"]);
  });

  it("override the provider's entry", () => {
    const settings = readSettings({ url: "https://rl.example/base/v1", apiKey: "OTHER" }, CONFIG);
    expect(settings.url).toBe("https://rl.example/base");
    expect(settings.apiKey).toBe("OTHER");
  });

  it("have no address until a request shows it", () => {
    expect(readSettings({}, {}).url).toBeUndefined();
    expect(readSettings({}, { models: { providers: { clawrl: { baseUrl: "${NOT_SET}" } } } }).url).toBeUndefined();
  });

  it.each([{ source: "env", id: "K" }, "oc-sent-v2.AAAA.end", "secretref-managed", " "])(
    "ignore a key that cannot be sent: %j",
    (apiKey) => {
      expect(readSettings({}, { models: { providers: { clawrl: { apiKey } } } }).apiKey).toBeUndefined();
      expect(readSettings({ apiKey }, CONFIG).apiKey).toBe("KEY");
    },
  );

  it("accept the names of the reference", () => {
    const settings = readSettings(
      { rollout_endpoint: "http://localhost:9/v1", session_tracking: false, training_mode: "async" },
      {},
    );
    expect(settings.url).toBe("http://localhost:9");
    expect(settings.sessionTracking).toBe(false);
  });

  it("accept two names that agree", () => {
    expect(readSettings({ url: "http://h:1", rollout_endpoint: "http://h:1/v1/" }, {}).url).toBe("http://h:1");
  });

  it.each([
    [{ url: "http://h:1", rollout_endpoint: "http://h:2" }, /url is "http:\/\/h:1".*rollout_endpoint.*"http:\/\/h:2"/],
    [{ sessionTracking: true, session_tracking: false }, /sessionTracking is true.*session_tracking.*false/],
    [{ trainingMode: "async", training_mode: "sync" }, /trainingMode is "async".*training_mode.*"sync"/],
  ])("report two names that disagree: %j", (given, message) => {
    expect(() => readSettings(given, {})).toThrow(message);
  });

  it.each([
    [{ trainingMode: "sync" }, /trainingMode is "sync".*background.*"async"/],
    [{ training_mode: "batch" }, /"batch"/],
    [{ sessionTracking: "yes" }, /must be true or false/],
    [{ url: "30000" }, /not a service address/],
    [{ url: "file:///x" }, /not a service address/],
    [{ url: 7 }, /must be a string/],
    [{ mainRuns: ["person", "titles"] }, /"titles".*person, agent, program, subagent, heartbeat, cron/],
    [{ mainRuns: ["memory"] }, /"memory"/],
  ])("report what is wrong with %j", (given, message) => {
    expect(() => readSettings(given, {})).toThrow(message);
  });

  it("keep a path in front of /v1", () => {
    expect(serviceUrl("http://h/rl-service/v1")).toBe("http://h/rl-service");
  });
});
