"""Two tables."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

NAMES = (
    "Berg, Anna", "Cole & Sons", 'Dora "Dot" Lane', "Evans, Ltd.", "Frost", "Grant", "Hill, Ian", "Irving", "Jones",
    "Klein, Kai", "Lund", "Moss",
)  # fmt: skip


def fill(workspace: Path, random: Random) -> None:
    """Write `customers.csv` and `orders.csv`."""
    ids = random.sample(range(100, 999), len(NAMES))
    with (workspace / "customers.csv").open("w", newline="") as file:
        customers = csv.writer(file, lineterminator="\n")
        customers.writerow(("id", "name", "country"))
        for number, name in zip(ids, NAMES, strict=True):
            customers.writerow((number, name, random.choice(("NO", "SE", "DK"))))
    with (workspace / "orders.csv").open("w", newline="") as file:
        orders = csv.writer(file, lineterminator="\n")
        orders.writerow(("order", "customer", "amount", "status"))
        for order in range(1, 81):
            status = random.choice(("paid", "paid", "open", "cancelled", "unpaid"))
            status = "open" if order % 20 == 0 else status
            customer = random.choice(ids[:-1])  # the last one has no order
            orders.writerow((order, customer, f"{random.randint(100, 90000) / 100:.2f}", status))
