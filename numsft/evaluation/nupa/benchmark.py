"""NUPA as a benchmark: its test questions in an order whose beginning is a fair sample, and their scoring."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from numsft.evaluation.nupa.generate import items, lengths_of
from numsft.evaluation.nupa.metrics import exact_match, extract_answer
from numsft.evaluation.nupa.tasks import TASKS

STOP = ("\n",)
"""An answer is one line."""


def questions(per_length: int, seed: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the test rows, with `benchmark` and `index`, up to `limit` of them.

    Every task and length gives one row before any gives a second, in an order drawn by hash: the first rows
    are a sample over all tasks and lengths, and a larger `per_length` or `limit` only appends.

    Args:
        per_length: Rows of each task and length.
        seed: Of the generator.
        limit: Rows at most.
    """
    rows = []
    for index, row in enumerate(islice(_rounds(per_length, seed), limit)):
        rows.append(
            {"benchmark": "nupa", "index": index, "question": row["prompt"], "gold": row["answer"]} | row
        )
    return rows


def _rounds(per_length: int, seed: int) -> Iterator[dict[str, Any]]:
    cells = [(task, length) for task in TASKS for length in lengths_of(task, "test")]
    cells.sort(key=lambda cell: hashlib.blake2b(f"{seed}|{cell}".encode(), digest_size=8).digest())
    streams = [items(task, length, "test", seed) for task, length in cells]
    for _ in range(per_length):
        for stream in streams:
            yield from islice(stream, 1)


def longest_answer(row: dict[str, Any]) -> int:
    """Return how many tokens the answer may take: a token a character, some to spare, in steps of 32."""
    return 32 * (-(-(len(row["gold"]) + 16) // 32))


def score_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Score rows with `cot`, the raw answer: its first number, exact in every part."""
    scored = []
    for row in rows:
        found = extract_answer(row.get("cot") or "")
        right = exact_match(found, row["gold"])
        scored.append(
            row
            | {
                "pot": None,
                "pot_ok": None,
                "pot_exec_error": None,
                "used_cot": False,
                "extracted": found,
                "matched_by": "exact" if right else None,
                "correct": right,
                "answered": bool(found),
            }
        )
    return scored
