"""Open WebUI, driven as its page in a browser does, over chat."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from openclaw_rl.shared.process import claim_port
from tests.real.clients.client import SECONDS, UTILITY, Client, Pip, Site, recipe
from tests.real.clients.tap import Exchange
from tests.rigs.programs import running

START_SECONDS = 600.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_OLLAMA_API": "false"}
PERSON = {"name": "A", "email": "a@example.com", "password": "a password"}
FIRST_TASKS = {"title_generation": True, "tags_generation": True}


class OpenWebUI(Client):
    """A chat for each conversation, with its title, tags and follow-ups."""

    name = "open_webui"
    packages = Pip("open-webui==0.12.4", "torch==2.13.0")
    features = frozenset({"compact"})

    def configure(self, site: Site) -> None:
        """Set the variables that our command prints."""
        lines = [line for line in recipe(site, "open-webui").splitlines() if "=" in line]
        site.variables |= dict(line.split("=", 1) for line in lines) | OFFLINE
        site.variables |= {"DATA_DIR": str(site.home / "data"), "ENABLE_CONTEXT_COMPACTION": "true"}

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Start its server, sign in, and send messages of one chat."""
        url = f"http://127.0.0.1:{claim_port('127.0.0.1', 0, setting='port')}"
        command = [str(site.installed / "bin" / "open-webui"), "serve", "--port", url.rpartition(":")[2]]
        log, ready = site.home / "open-webui.log", f"{url}/health"
        with (
            running(command, site.work, site.environment(), log, ready=ready, seconds=START_SECONDS),
            httpx.Client(base_url=f"{url}/api", timeout=SECONDS) as page,
        ):
            first = site.tap.conversation == 1
            signed = page.post(f"/v1/auths/{'signup' if first else 'signin'}", json=PERSON).raise_for_status()
            page.headers["authorization"] = f"Bearer {signed.json()['token']}"
            page.get("/models").raise_for_status()
            chat: dict[str, Any] = {"id": None, "newest": None}
            site.session = ""

            def say(words: str) -> None:
                if words == "/compact":
                    page.post(f"/v1/chats/{chat['id']}/compact", json={"model": "policy"}).raise_for_status()
                    return
                message = {"id": str(uuid.uuid4()), "parentId": chat["newest"], "role": "user", "content": words}
                body = {
                    "model": "policy",
                    "stream": True,
                    "session_id": "page",
                    "chat_id": chat["id"],
                    "parent_id": chat["newest"],
                    "id": str(uuid.uuid4()),
                    "user_message": message,
                    "messages": [{"role": "user", "content": words}],
                    "background_tasks": {"follow_up_generation": True} | ({} if chat["id"] else FIRST_TASKS),
                }
                chat["newest"] = body["id"]
                answer = page.post("/chat/completions", json=body).raise_for_status().json()
                chat["id"] = answer["chat_id"]

            yield say

    def purpose(self, exchange: Exchange) -> str:
        """Tell its own requests by the heading of their prompts."""
        return UTILITY if exchange.newest.startswith("### Task:") else ""
