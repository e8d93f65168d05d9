"""NUPA's scores: exact match, digit match and dlength by task, range and length; how long numbers may get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.bootstrap import RESAMPLES, intervals
from numsft.evaluation.nupa.generate import RANGES
from numsft.evaluation.nupa.metrics import digit_match, dlength, exact_match

WELL_LEARNED, PRESERVED = 0.9, 0.1
METRICS = ("exact_match", "digit_match", "dlength")


def nupa_scores(
    rows: Sequence[Mapping[str, Any]], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Return NUPA's entry of `scores.json`.

    The metrics are taken from `extracted` and `gold`, not from `correct`, so both modes give the same. The
    overall values are means over rows, however many a task has; the others are of their own rows.

    Args:
        rows: Scored rows with `representation`, `task`, `length` and `range` beside the usual fields.
        seed: Of the bootstrap.
        resamples: Of the bootstrap.

    Raises:
        UserError: If a row lacks one of those fields.
    """
    import numpy as np

    table = np.empty((len(rows), len(METRICS)))
    cells: dict[str, dict[str, list[int]]] = {
        "representations": defaultdict(list),
        "ranges": defaultdict(list),
        "tasks": defaultdict(list),
    }
    for number, row in enumerate(rows):
        if missing := [key for key in ("representation", "task", "length", "range") if key not in row]:
            raise UserError(
                f"nupa row {row.get('index')} has no {missing[0]!r}; expected its generator's fields"
            )
        found, gold = row.get("extracted") or "", row["gold"]
        table[number] = exact_match(found, gold), digit_match(found, gold), dlength(found, gold)
        cells["representations"][row["representation"]].append(number)
        cells["ranges"][row["range"]].append(number)
        cells["tasks"][f"{row['representation'].lower()}_{row['task']}"].append(number)

    def means(chosen: Sequence[int]) -> dict[str, Any]:
        part = table[list(chosen)].mean(axis=0).tolist()
        return {"n": len(chosen), **dict(zip(METRICS, part, strict=True))}

    low, high = intervals(table[:, :1], seed=seed, resamples=resamples)[0].tolist()
    overall = means(range(len(rows)))
    return {
        "n": overall.pop("n"),
        "accuracy": overall["exact_match"],
        "accuracy_ci95": [low, high],
        "answered": sum(bool(row.get("extracted")) for row in rows) / len(rows),
        **overall,
        "representations": {name: means(chosen) for name, chosen in sorted(cells["representations"].items())},
        "ranges": {name: means(cells["ranges"][name]) for name in RANGES if name in cells["ranges"]},
        "tasks": {
            name: {**means(chosen), **_by_length([rows[i] for i in chosen], chosen, means)}
            for name, chosen in sorted(cells["tasks"].items())
        },
    }


def _by_length(rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], means: Any) -> dict[str, Any]:
    ranges, lengths = defaultdict(list), defaultdict(list)
    for row, number in zip(rows, numbers, strict=True):
        ranges[row["range"]].append(number)
        lengths[row["length"]].append(number)
    by_length = {length: means(lengths[length]) for length in sorted(lengths)}
    exact = {length: cell["exact_match"] for length, cell in by_length.items()}
    return {
        "ranges": {name: means(ranges[name]) for name in RANGES if name in ranges},
        "lengths": {str(length): cell for length, cell in by_length.items()},
        "well_learned_length": longest(exact, WELL_LEARNED),
        "performance_preserving_length": longest(exact, PRESERVED),
    }


def longest(exact: Mapping[int, float], least: float) -> int:
    """Return the longest length whose exact match is at least `least`; 0 where no length has it."""
    return max((length for length, share in exact.items() if share >= least), default=0)
