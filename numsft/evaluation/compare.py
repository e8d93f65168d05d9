"""Two models on the same questions: is the difference more than chance? The content of `compare.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.bootstrap import RESAMPLES, intervals, mcnemar
from numsft.evaluation.metrics import ln_eps, read_pair
from numsft.evaluation.scores import CHOICE_BENCHMARKS, Row, by_benchmark


def compare(
    a_rows: Sequence[Row],
    b_rows: Sequence[Row],
    *,
    a_mode: str | None = None,
    b_mode: str | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Compare two models question by question, matched by (benchmark, index); differences are A - B.

    Questions that only one of them has are left out and counted.

    Args:
        a_rows: Scored rows of A.
        b_rows: Scored rows of B.
        a_mode: The mode that scored A's rows, as in its `scores.json`; None where it is not known.
        b_mode: The same of B.
        seed: Of the bootstrap.
        resamples: Of the bootstrap.

    Returns:
        `mode` and `benchmarks`: for each benchmark that both have `n`, `accuracy_a`, `accuracy_b`,
        `accuracy_difference`, `ci95` (paired bootstrap), `mcnemar` {`a_only`, `b_only`, `p`}, `log_mae`
        (`ln_eps` where both predictions were parsed: `n`, `difference`, `ci95`), `unmatched` {`a`, `b`}.

    Raises:
        UserError: If the modes differ, a question differs between the two, or they share none.
    """
    modes = [_mode(rows, mode, name) for rows, mode, name in ((a_rows, a_mode, "A"), (b_rows, b_mode, "B"))]
    if None not in modes and modes[0] != modes[1]:
        raise UserError(
            f"A was scored in {modes[0]} mode and B in {modes[1]} mode; expected one mode: "
            "bring one to the other's with --rescore"
        )
    a_groups, b_groups = by_benchmark(a_rows), by_benchmark(b_rows)
    result: dict[str, Any] = {}
    for name, a_group in a_groups.items():
        b_by_index = {row["index"]: row for row in b_groups.get(name, [])}
        pairs = [(row, b_by_index[row["index"]]) for row in a_group if row["index"] in b_by_index]
        for a, b in pairs:
            _check_same_question(a, b)
        if pairs:
            unmatched = {"a": len(a_group) - len(pairs), "b": len(b_by_index) - len(pairs)}
            result[name] = {**_differences(pairs, seed, resamples), "unmatched": unmatched}
    if not result:
        raise UserError(
            f"A ({', '.join(a_groups)}) and B ({', '.join(b_groups)}) share no question; "
            "expected the same benchmarks and rows"
        )
    return {
        "mode": modes[0] or modes[1],
        "benchmarks": result,
        "bootstrap": {"resamples": resamples, "seed": seed, "level": 0.95},
    }


def _mode(rows: Sequence[Row], given: str | None, name: str) -> str | None:
    """The mode given, else the one under whose rules the rows' programs were run, else None."""
    if given:
        return given
    recorded = {
        row["pot_rules"] for row in rows if row.get("pot_rules") and row.get("pot_stdout") is not None
    }
    if len(recorded) > 1:
        raise UserError(f"{name} holds rows of both modes; expected one: score all of them with --rescore")
    return recorded.pop() if recorded else None


def _check_same_question(a: Row, b: Row) -> None:
    for field in ("question", "gold"):
        left, right = a.get(field), b.get(field)
        if left is not None and right is not None and left != right:
            raise UserError(
                f"A and B have different {field}s in {a['benchmark']} row {a['index']}; "
                "expected both to be scored on the same data"
            )


def _differences(pairs: Sequence[tuple[Row, Row]], seed: int, resamples: int) -> dict[str, Any]:
    import numpy as np

    right = np.array([[bool(a["correct"]), bool(b["correct"])] for a, b in pairs], dtype=np.float64)
    columns = np.stack([right[:, 0] - right[:, 1], [_log_difference(a, b) for a, b in pairs]], axis=1)
    ends = intervals(columns, seed=seed, resamples=resamples).tolist()
    logs = columns[:, 1][~np.isnan(columns[:, 1])]
    a_only, b_only = int((columns[:, 0] > 0).sum()), int((columns[:, 0] < 0).sum())
    return {
        "n": len(pairs),
        "accuracy_a": float(right[:, 0].mean()),
        "accuracy_b": float(right[:, 1].mean()),
        "accuracy_difference": (a_only - b_only) / len(pairs),
        "ci95": ends[0],
        "mcnemar": {"a_only": a_only, "b_only": b_only, "p": mcnemar(a_only, b_only)},
        "log_mae": {
            "n": len(logs),
            "difference": float(logs.mean()) if len(logs) else None,
            "ci95": ends[1] if len(logs) else None,
        },
    }


def _log_difference(a: Row, b: Row) -> float:
    """A's error minus B's in `ln_eps`; NaN unless gold and both predictions are numbers."""
    if a["benchmark"] in CHOICE_BENCHMARKS:
        return float("nan")
    errors = []
    for row in (a, b):
        pair = read_pair(
            row.get("gold") or a.get("gold") or "", row.get("extracted") or "", bool(row["correct"])
        )
        if pair is None or pair[1] is None:
            return float("nan")
        errors.append(abs(ln_eps(pair[1].value) - ln_eps(pair[0].value)))
    return errors[0] - errors[1]
