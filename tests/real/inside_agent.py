"""An agent of Harbor's kind that runs inside the sandbox: a program there asks the policy once, then tries what the key
of its attempt does not open. It writes what it got to /workspace/answer.txt.
"""

from __future__ import annotations

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

PROGRAM = r"""
import json, os, socket, urllib.error, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def ask(url, body=None):
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None
root = base.removesuffix("/v1")
prompt = [{"role": "user", "content": os.environ["TASK"]}]
status, said = ask(base + "/chat/completions", {"model": "policy", "messages": prompt})
tried = {"chat": status, "said": said and said["choices"][0]["message"]["content"]}
tried["outcome"] = ask(root + "/rl/outcome", {"session_id": os.environ.get("SESSION", "x"), "reward": 1})[0]
tried["status"] = ask(root + "/rl/status")[0]
for name, address in {"world": ("1.1.1.1", 53), "host": ("127.0.0.1", 22)}.items():
    try:
        socket.create_connection(address, timeout=5).close()
        tried[name] = "reached"
    except OSError as error:
        tried[name] = "not reached"
tried["variables"] = sorted(name for name in os.environ if "KEY" in name or name.startswith("OPENCLAW"))
open("/workspace/answer.txt", "w").write(json.dumps(tried))
"""


class InsideAgent(BaseInstalledAgent):
    """Runs `PROGRAM`."""

    @staticmethod
    def name() -> str:
        return "inside"

    async def install(self, environment: BaseEnvironment) -> None:
        (self.logs_dir / "program.py").write_text(PROGRAM)
        await environment.upload_file(self.logs_dir / "program.py", "/installed-agent/program.py")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        session = self.session_id or ""
        await self.exec_as_agent(
            environment, "python3 /installed-agent/program.py", env={"TASK": instruction, "SESSION": session}
        )
