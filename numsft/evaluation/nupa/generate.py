"""Draws rows of the number tasks: seeded, distinct, train and test disjoint whatever their seeds.

An item belongs to one split by a hash of its task and operands (one item in five is a test item), so no seed,
size or length can move it from train to test. Where the order of the operands does not matter, the hash
ignores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.nupa.tasks import TASKS, Task

RANGES = ("S", "M", "L", "XL")
SPLITS = ("train", "test")
_PATIENCE = 400  # draws in a row without a new item after which a task counts as used up at a length


def split_of(task: str, operands: Sequence[str]) -> str:
    """`"train"` or `"test"`: where the item of `TASKS[task]` with these operands belongs, for ever."""
    ordered = sorted(operands) if TASKS[task].symmetric else operands
    digest = hashlib.blake2b("|".join([task, *ordered]).encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % 5 == 0 else "train"


def range_of(task: str, length: int) -> str:
    """The range S, M, L or XL in which the task counts this length (XL also beyond the last bound)."""
    return next((name for name, top in zip(RANGES, TASKS[task].ranges, strict=True) if length <= top), "XL")


def lengths_of(task: str, split: str) -> range:
    """The lengths NUPA trains on (ranges S and M) or tests: test starts above the shortest and reaches XL."""
    chosen = TASKS[task]
    if split == "train":
        return range(chosen.min_length, chosen.ranges[1] + 1)
    if chosen.representation == "Fraction":
        first = 1
    elif chosen.ranges[1] == 8 or chosen.representation in ("Float", "Scientific"):
        first = 3
    else:
        first = 5
    return range(first, chosen.ranges[3] + 1)


def items(task: str, length: int, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Distinct rows of one task and length, without end or until the task is used up at that length.

    The stream depends on (task, length, split, seed) alone: asking for more rows only appends some.
    """
    chosen = TASKS[task]
    rng = Random(f"{seed}|{split}|{task}|{length}")
    least = (length + 1) // 2 if split == "test" else 1
    seen: set[tuple[str, ...]] = set()
    misses = 0
    while misses < _PATIENCE:
        operands = chosen.draw(rng, length, least)
        if operands in seen or split_of(task, operands) != split:
            misses += 1
            continue
        misses = 0
        seen.add(operands)
        yield _row(chosen, task, length, operands)


def _row(chosen: Task, key: str, length: int, operands: tuple[str, ...]) -> dict[str, Any]:
    return {
        "representation": chosen.representation,
        "task": chosen.name,
        "length": length,
        "range": range_of(key, length),
        "operands": list(operands),
        "prompt": chosen.template.format(*operands),
        "answer": chosen.answer(*operands),
    }


def generate(
    tasks: Sequence[str], digits: Sequence[int], size: int, *, split: str = "train", seed: int = 0
) -> list[dict[str, Any]]:
    """`size` distinct rows, spread evenly over tasks and lengths, shuffled.

    A task that is used up at a length (one-digit sums are few) leaves its share to the others; when all are
    used up, fewer rows than `size` come back.

    Args:
        tasks: Keys of `TASKS`.
        digits: Least and greatest length, both included.
        size: Rows wanted.
        split: `"train"` or `"test"`.
        seed: Seed of the draw and of the order.

    Raises:
        UserError: An unknown task or split, or lengths or a size that make no sense.
    """
    if unknown := [task for task in tasks if task not in TASKS]:
        raise UserError(f"unknown number task {unknown[0]!r}; expected some of {', '.join(TASKS)}")
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}; expected train or test")
    if not tasks:
        raise UserError("the list of number tasks is empty; name at least one, such as integer_add")
    bounds: list[Any] = list(digits) if isinstance(digits, (list, tuple)) else [digits]
    whole = all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds)
    if len(bounds) != 2 or not whole or not 1 <= bounds[0] <= bounds[1] <= 100:
        raise UserError(f"number lengths {digits!r} found; expected [least, greatest] within 1 and 100")
    if size < 1:
        raise UserError(f"{size} number items asked for; expected at least 1")

    open_cells = [
        items(task, length, split, seed)
        for length in range(bounds[0], bounds[1] + 1)
        for task in tasks
        if length >= TASKS[task].min_length
    ]
    rows: list[dict[str, Any]] = []
    while open_cells and len(rows) < size:
        still_open = []
        for cell in open_cells:
            if len(rows) == size:
                break
            if (row := next(cell, None)) is not None:
                rows.append(row)
                still_open.append(cell)
        open_cells = still_open
    Random(f"{seed}|order").shuffle(rows)
    return rows
