"""Cells and results as the benchmark makes them, without a run."""

from __future__ import annotations

from typing import Any

from bench.learning.cell import Cell, CurvePoint, Result


def cell(**changes: Any) -> Cell:
    fields: dict[str, Any] = {"arm": "rehearse", "persona": "student", "seed": 1, "interactions": 24, "lanes": 8}
    return Cell(**(fields | changes))


def result(of: Cell, styles: dict[int, float], accuracy: float = 1.0, cpu_seconds: float = 1.0) -> Result:
    points = [
        CurvePoint(
            interactions=at, version=0, count=4, style=style, accuracy=accuracy, escape=0.25, kl=0.5 if at else None
        )
        for at, style in styles.items()
    ]
    return Result(
        cell=of,
        curves={person: points for person in of.people},
        versions={"retired": 2, "live": 1},
        complaints=3,
        reactions=8,
        seconds=1.0,
        cpu_seconds=cpu_seconds,
    )
