"""A shop: the agent asks for two prices, and says how much both articles cost together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import KindOptions, Split
from openclaw_rl.environments.steps import Observation, Verdict

ARTICLES = ("apples", "bread", "candles", "dates", "eggs", "flour", "grapes", "honey")
ARTICLE = {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}
PRICE = {"name": "price", "description": "The price of an article in cents", "parameters": ARTICLE}


class Shop:
    """The environment of one attempt."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.prices: dict[str, int] = task.data["prices"]
        return Observation()  # without a text, the agent gets the task's prompt

    async def tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": PRICE}]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        price = self.prices.get(str(arguments.get("article")))
        if price is None:  # the agent's mistake: it reads this, and may try again
            return Observation(text=f"no such article; there are {', '.join(self.prices)}", error=True)
        return Observation(text=str(price))

    async def evaluate(self, answer: str) -> Verdict:
        total = sum(self.prices.values())
        right = str(total) in answer.replace(".", " ").split()
        return Verdict(reward=float(right), detail={"total": total}, next_state=f"They cost {total} cents.")

    async def close(self) -> None:
        """Nothing to end."""


class Shops:
    """The kind: tasks, and an environment for each attempt at them."""

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        for number in count():
            random = Random(f"{split}/{seed}/{number}")
            prices = {article: random.randint(20, 80) for article in random.sample(ARTICLES, 2)}
            if (sum(prices.values()) % 4 == 0) == (split == "held-out"):  # no total is in both splits
                prompt = f"How much do {' and '.join(prices)} cost together?"
                yield Task(id=f"{split}-{seed}-{number}", prompt=prompt, data={"prices": prices})

    environment = Shop


def create(spec: str, options: KindOptions) -> Shops:
    return Shops()
