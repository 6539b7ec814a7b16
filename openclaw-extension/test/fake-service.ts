import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";

export interface Received {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: Record<string, unknown>;
}

type Answer = { status: number; body: unknown } | "silence";

/** A stand-in for our service: records its requests and answers as a test sets it. */
export class FakeService {
  readonly received: Received[] = [];
  answer: (received: Received) => Answer = () => ({ status: 200, body: {} });
  readonly #waiting: (() => void)[] = [];

  private constructor(private readonly server: Server) {
    server.on("request", (request, response) => {
      let text = "";
      request.setEncoding("utf8");
      request.on("data", (chunk: string) => {
        text += chunk;
      });
      request.on("end", () => {
        const received: Received = {
          method: request.method ?? "",
          path: request.url ?? "",
          headers: request.headers,
          body: text === "" ? {} : (JSON.parse(text) as Record<string, unknown>),
        };
        this.received.push(received);
        const answer = this.answer(received);
        if (answer !== "silence") {
          response.writeHead(answer.status, { "content-type": "application/json" });
          response.end(JSON.stringify(answer.body));
        }
        for (const wake of this.#waiting.splice(0)) wake();
      });
    });
  }

  static async start(): Promise<FakeService> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new FakeService(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Wait for `count` requests; returns all so far. */
  async got(count: number): Promise<Received[]> {
    while (this.received.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.received;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
