import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { ask, type Reply } from "../src/service.js";
import { FakeService } from "./fake-service.js";

let service: FakeService;

beforeEach(async () => {
  service = await FakeService.start();
});

afterEach(() => service.stop());

function post(body: unknown = {}): Promise<Reply> {
  return ask({ method: "POST", url: `${service.url}/rl/x`, apiKey: undefined, body }, 200);
}

describe("a request to the service", () => {
  it("returns the answer", async () => {
    service.answer = () => ({ status: 200, body: { turn_id: "turn_a" } });
    expect(await post({ score: 1 })).toEqual({ kind: "done", body: { turn_id: "turn_a" } });
    expect(service.received[0]?.body).toEqual({ score: 1 });
    expect(service.received[0]?.headers.authorization).toBeUndefined();
  });

  it.each([400, 401, 404, 422])("is refused with %d, in the service's words", async (status) => {
    service.answer = () => ({ status, body: { error: { message: "because" } } });
    expect(await post()).toEqual({ kind: "refused", status, message: "because" });
  });

  it.each([408, 429, 500, 503])("may be retried after %d", async (status) => {
    service.answer = () => ({ status, body: {} });
    expect(await post()).toEqual({ kind: "unreachable", status, message: `HTTP ${status}` });
  });

  it("gives up in time", async () => {
    service.answer = () => "silence";
    expect(await post()).toMatchObject({ kind: "unreachable" });
  });

  it("is unreachable at an unused or invalid address", async () => {
    const { url } = service;
    await service.stop();
    expect(await ask({ method: "GET", url, apiKey: undefined }, 200)).toMatchObject({ kind: "unreachable" });
    expect(await ask({ method: "GET", url: "nowhere", apiKey: undefined }, 200)).toMatchObject({ kind: "unreachable" });
    service = await FakeService.start();
  });

  it("does not send the key to a redirect target", async () => {
    const elsewhere = createServer((_request, response) => {
      response.writeHead(307, { location: service.url });
      response.end();
    });
    await new Promise<void>((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
    expect(await ask({ method: "GET", url, apiKey: "KEY" }, 1_000)).toMatchObject({ kind: "unreachable" });
    expect(service.received).toEqual([]);
    await new Promise((resolve) => elsewhere.close(resolve));
  });
});
