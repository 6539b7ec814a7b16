"""Count the errors in the logs again."""

from __future__ import annotations

from collections import Counter
from typing import Any


def check(state: Any) -> None:
    """Compare `errors.csv` with the count."""
    count: Counter[str] = Counter()
    for log in sorted((state.workspace / "logs").glob("*.log")):
        for line in log.read_text().splitlines():
            _, _, _, path, status, _ = line.split()
            if int(status) >= 500:
                count[path.partition("?")[0]] += 1
    rows = sorted(count.items(), key=lambda item: (-item[1], item[0]))
    state.expect("errors.csv", "\n".join(["path,errors", *(f"{path},{number}" for path, number in rows)]))
