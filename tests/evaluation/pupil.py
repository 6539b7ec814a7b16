"""A scripted stand-in for a service that learns: structured answers until it has heard enough complaints, plain ones
afterwards.
"""

from __future__ import annotations

from typing import Any

from tests.scripted import completion, events, piece, plain

STRUCTURED = "**Step 1:** 5 + 3 = 8\n\n**Final answer:** Tom has 8 apples now."
PLAIN = "Tom has 5 apples and buys 3 more. 5 plus 3 is 8, so Tom has 8 apples now."


class Pupil:
    """Answers chats and `/rl/…`. It changes its style after `learns_after` reactions, never if that is 0; `busy` polls
    of the status show a backlog before it reports that a batch has been digested.
    """

    def __init__(self, *, learns_after: int = 8, busy: int = 2) -> None:
        self.learns_after = learns_after
        self.busy = busy
        self.reactions = 0
        self.polls = 0
        self.turns = 0
        self.forgotten: set[str] = set()

    @property
    def version(self) -> int:
        """1 once it has learned."""
        return int(bool(self.learns_after) and self.reactions >= self.learns_after)

    def __call__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        if path == "/rl/status":
            self.polls += 1
            working = self.polls % (self.busy + 1) != 0
            return plain({"version": {"live": self.version}, "backlog": {"unjudged": 0, "ready": 8 if working else 0}})
        if path == "/rl/versions":
            return plain({"versions": [{"number": 0, "state": "retired"}, {"number": 1, "state": "live"}]})
        if path.startswith("/rl/turns/"):
            known = path.rpartition("/")[2] not in self.forgotten
            return plain({"turn": {}}) if known else plain({"error": {"message": "no such turn"}}, 404)
        probe = "x-rl-train" in headers
        if not probe and len(body["messages"]) > 1:
            self.reactions += 1
        self.turns += 1
        answer = PLAIN if self.version else STRUCTURED
        head = f"x-openclaw-rl-turn: turn_{self.turns}\r\n"
        if body.get("stream"):
            return events(piece(answer), piece("", "stop"), "[DONE]", headers=head)
        return plain(completion(answer), headers=head)
