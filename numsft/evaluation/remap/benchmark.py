"""A file of remapped questions as three benchmarks: the originals, the remapped ones, the controls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.benchmarks import Question
from numsft.evaluation.remap.accuracy import remap_accuracy
from numsft.evaluation.remap.errors import KINDS, classify_errors

BENCHMARKS = {"original": "gsm8k_original", "remap": "gsm8k_remap", "control": "gsm8k_control"}
"""Kind of a row -> the benchmark it is scored as; there, `index` is the row of the file."""

ORIGIN = ("item", "kind", "variant")
"""What a scored row keeps of its row in the file."""

Row = dict[str, Any]
_TEXTS = ("original_question", "original_answer", "question", "answer")


def read_variants(path: Path, limit: int | None = None) -> list[Row]:
    """Read a file that `python -m numsft.evaluation.remap` wrote, and put each item's original before it.

    Args:
        path: One JSON object a line.
        limit: Items at most.

    Returns:
        Rows with `benchmark`, `index` (line of the file, for an original that of its first variant), `item`
        (row of GSM8K's file), `kind`, `variant`, `question`, `gold`.

    Raises:
        UserError: If the file or a line cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} ({error}): write it with numsft.evaluation.remap") from error
    rows: list[Row] = []
    items: set[int] = set()
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        row = _variant(path, number, line)
        item = row["index"]
        if item not in items:
            if limit is not None and len(items) == limit:
                continue
            items.add(item)
            rows.append(_row("original", number, item, 0, row["original_question"], row["original_answer"]))
        rows.append(_row(row["kind"], number, item, row["variant"], row["question"], row["answer"]))
    if not rows:
        raise UserError(f"{path} holds no remapped question: write it with numsft.evaluation.remap")
    return rows


def questions(rows: Iterable[Row]) -> list[Question]:
    """Return the questions to ask."""
    return [Question(row["benchmark"], row["index"], row["question"], row["gold"]) for row in rows]


def summary(rows: Sequence[Row]) -> Row:
    """Return how the model did among the items it solved, and what kind its errors are.

    Args:
        rows: Scored rows of `read_variants`.

    Returns:
        `remap_accuracy`'s fields, and `errors`: for each kind of row how many answers written as reasoning
        are `correct`, `arithmetic`, `logical` or `unchecked`; an answer computed by a program has no steps
        (`program`).

    Raises:
        UserError: If a row does not say what it is a variant of.
    """
    for row in rows:
        if missing := [field for field in ORIGIN if field not in row]:
            raise UserError(
                f"row {row['index']} of {row['benchmark']} has no {missing[0]!r}: score samples of --remap"
            )
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in BENCHMARKS}
    originals = [{"index": row["item"], "correct": row["correct"]} for row in by_kind["original"]]
    variants = [row | {"index": row["item"]} for kind in ("remap", "control") for row in by_kind[kind]]
    errors = {}
    for kind, group in by_kind.items():
        found = Counter(_kind_of_error(row) for row in group)
        errors[kind] = {name: found[name] for name in (*KINDS, "program")}
    return {**remap_accuracy(originals, variants), "errors": errors}


def _kind_of_error(row: Row) -> str:
    text = row.get("cot")
    if row.get("pot") and not row.get("used_cot"):
        return "correct" if row["correct"] else "program"
    try:
        return classify_errors(text or "", row["gold"], row.get("extracted") or None).kind
    except ValueError:
        return "correct" if row["correct"] else "unchecked"


def _variant(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
        whole = isinstance(row["index"], int) and isinstance(row["variant"], int)
        if whole and row["kind"] in ("remap", "control") and all(isinstance(row[key], str) for key in _TEXTS):
            return dict(row)
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"line {number + 1} of {path} is no remapped question: write it with numsft.evaluation.remap"
    )


def _row(kind: str, index: int, item: int, variant: int, question: str, gold: str) -> Row:
    return {
        "benchmark": BENCHMARKS[kind],
        "index": index,
        "item": item,
        "kind": kind,
        "variant": variant,
        "question": question,
        "gold": gold,
    }
