"""Join the tables again, in whole cents."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any


def check(state: Any) -> None:
    """Compare the rows of `totals.csv`, however they are quoted."""
    with (state.workspace / "customers.csv").open(newline="") as file:
        names = {row["id"]: row["name"] for row in csv.DictReader(file)}
    cents: Counter[str] = Counter()
    with (state.workspace / "orders.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["status"] == "paid":
                cents[names[row["customer"]]] += int(row["amount"].replace(".", ""))
    wanted = [["name", "total"]]
    for name, amount in sorted(cents.items(), key=lambda item: (-item[1], item[0])):
        wanted.append([name, f"{amount // 100}.{amount % 100:02}"])
    found = [row for row in csv.reader(state.text("totals.csv").splitlines()) if row]
    for number, (left, right) in enumerate(zip(found, wanted, strict=False), start=1):
        if left != right:
            state.fault(f"totals.csv, row {number}: {left} instead of {right}")
            return
    if len(found) != len(wanted):
        state.fault(f"totals.csv: {len(found)} rows instead of {len(wanted)}")
