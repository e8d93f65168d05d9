"""From scored rows to `scores.json`; its fields are described in `docs/scores.md`."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.bootstrap import RESAMPLES, intervals
from numsft.evaluation.metrics import INTEGER_PLACES, decimal_places, numeric_columns, read_pair
from numsft.evaluation.nupa.summary import nupa_scores

Row = Mapping[str, Any]

PAPER_BENCHMARKS = ("gsm8k", "math", "svamp", "simuleq", "aqua", "sat_math", "mmlu_math")
"""What the paper's mACC is a mean over (arXiv 2605.20369, Table 2)."""

CHOICE_BENCHMARKS = ("aqua", "sat_math", "mmlu_math")
PACKAGES = ("numsft", "torch", "transformers", "peft", "lm-eval", "vllm", "math-verify", "numpy")
LOG_MAES = ("ln_eps", "log10p1", "ln1p")


def scores(
    rows: Sequence[Row],
    mode: str,
    *,
    isolation: Any = None,
    settings: Mapping[str, Any] | None = None,
    entropies: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Return the content of `scores.json`; every number in it is finite or None.

    Args:
        rows: Scored rows of any benchmarks, in any order, with the fields of `samples.jsonl`.
        mode: `"strict"` or `"paper"`: the rules that scored them.
        isolation: The sandbox's `Isolation`, or its level; None where no program was run.
        settings: What the run was asked for.
        entropies: Benchmark -> `"generated"` or `"teacher_forced"` -> `numsft.evaluation.entropy.EntropySums`
            or its means.
        seed: Of the bootstrap.
        resamples: Of the bootstrap.

    Raises:
        UserError: If there is no row, an unknown mode, or a question twice.
    """
    if mode not in ("strict", "paper"):
        raise UserError(f"mode is {mode!r}; expected strict or paper")
    benchmarks: dict[str, Any] = {}
    for name, group in by_benchmark(rows).items():
        if name == "nupa":
            benchmarks[name] = nupa_scores(group, seed=seed, resamples=resamples)
        else:
            benchmarks[name] = benchmark_scores(group, seed=seed, resamples=resamples)
        if found := (entropies or {}).get(name):
            benchmarks[name]["entropy"] = {
                text: dict(sums) if isinstance(sums, Mapping) else sums.means()
                for text, sums in found.items()
            }
    counted = [name for name in PAPER_BENCHMARKS if name in benchmarks]
    accuracies = [benchmarks[name]["accuracy"] for name in counted]
    return {
        "mode": mode,
        "macc": sum(accuracies) / len(accuracies) if accuracies else None,
        "macc_over": counted,
        "sandbox": _sandbox(isolation),
        "benchmarks": benchmarks,
        "settings": dict(settings or {}),
        "bootstrap": {"resamples": resamples, "seed": seed, "level": 0.95},
        "versions": versions(),
    }


def by_benchmark(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Sort rows into benchmarks, in the order of their first rows, each by index.

    Raises:
        UserError: If there is no row, a row lacks a field, or a question is there twice.
    """
    if not rows:
        raise UserError("there is no scored row; expected at least one question")
    groups: dict[str, dict[Any, Row]] = {}
    for number, row in enumerate(rows, 1):
        if missing := [field for field in ("benchmark", "index", "correct") if row.get(field) is None]:
            raise UserError(f"row {number} has no {missing[0]!r}; expected a scored row: use --rescore first")
        group = groups.setdefault(row["benchmark"], {})
        if row["index"] in group:
            raise UserError(
                f"{row['benchmark']} row {row['index']} is there twice; expected one row a question"
            )
        group[row["index"]] = row
    return {name: [group[index] for index in sorted(group)] for name, group in groups.items()}


def benchmark_scores(rows: Sequence[Row], *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Return the entry of one benchmark, NUPA aside."""
    import numpy as np

    lettered = rows[0]["benchmark"] in CHOICE_BENCHMARKS
    found = [
        None
        if lettered
        else read_pair(row.get("gold") or "", row.get("extracted") or "", bool(row["correct"]))
        for row in rows
    ]
    numeric = [row for row, pair in enumerate(found) if pair is not None]
    pairs = [pair for pair in found if pair is not None]
    places = [*INTEGER_PLACES, *decimal_places(gold for gold, _ in pairs)]
    correct = np.array([float(bool(row["correct"])) for row in rows])
    numbers = numeric_columns(pairs)
    # Resampled are all questions, also where only some golds are numbers.
    columns = np.full((len(rows), 1 + len(numbers)), np.nan)
    columns[:, 0] = correct
    columns[numeric, 1:] = np.stack(list(numbers.values()), axis=1) if pairs else np.nan
    ends = dict(zip(["accuracy", *numbers], intervals(columns, seed=seed, resamples=resamples), strict=True))

    entry: dict[str, Any] = {
        "n": len(rows),
        "accuracy": float(correct.mean()),
        "accuracy_ci95": _pair(ends["accuracy"]),
        "answered": _share(rows, "answered"),
        "used_cot": _share(rows, "used_cot"),
        "n_numeric": len(pairs),
        "coverage": sum(prediction is not None for _, prediction in pairs) / len(pairs) if pairs else None,
        **_means(numbers, places),
        "log_mae_ci95": _pair(ends["ln_eps"]),
        "worst_case": _means(numeric_columns(pairs, worst=True), places),
        "union_places": _places(numbers, places, "union_"),
    }
    for place, cell in entry["places"].items():
        cell["mae_ci95"] = _pair(ends[f"mae {place}"])
    for field in sorted({field for row in rows for field in row if field.startswith("correct_")}):
        entry["accuracy_" + field.removeprefix("correct_")] = _share(rows, field)
    entry["pot_errors"] = _counts(rows, "pot_exec_error")
    entry["matched_by"] = _counts(rows, "matched_by")
    return entry


def _means(columns: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    import numpy as np

    ln1p = columns["ln1p"][~np.isnan(columns["ln1p"])]
    return {
        "log_mae": {
            **{name: _mean(columns[name]) for name in LOG_MAES},
            "ln1p_median": float(np.median(ln1p)) if len(ln1p) else None,
        },
        "places": _places(columns, places, ""),
        "sign_accuracy": _mean(columns["sign"]),
        "length_accuracy": _mean(columns["length"]),
    }


def _places(columns: Mapping[str, Any], places: Sequence[int], prefix: str) -> dict[str, Any]:
    import numpy as np

    return {
        str(place): {
            "n": int((~np.isnan(columns[f"{prefix}mae {place}"])).sum()),
            "mae": _mean(columns[f"{prefix}mae {place}"]),
            "acc": _mean(columns[f"{prefix}acc {place}"]),
        }
        for place in places
    }


def _mean(column: Any) -> float | None:
    import numpy as np

    there = column[~np.isnan(column)]
    return float(there.mean()) if len(there) else None


def _pair(ends: Any) -> list[float] | None:
    low, high = (float(end) for end in ends)
    return None if math.isnan(low) else [low, high]


def _share(rows: Sequence[Row], field: str) -> float:
    return sum(bool(row.get(field)) for row in rows) / len(rows)


def _counts(rows: Sequence[Row], field: str) -> dict[str, int]:
    found = Counter(str(row[field]) for row in rows if row.get(field) is not None)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _sandbox(isolation: Any) -> dict[str, Any]:
    if isolation is None or isinstance(isolation, str):
        return {"isolation": isolation}
    parts = dataclasses.asdict(isolation)
    return {"isolation": parts.pop("level"), **parts}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages a score may depend on, those that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
