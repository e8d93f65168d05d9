"""Means over seeds, and differences from the baseline paired by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from numsft.errors import UserError

LOWER_IS_BETTER = ("loss", "log_mae", "entropy", "runtime")
"""Endings and parts of names of metrics that should fall; all others should rise."""


def falls(metric: str) -> bool:
    """Whether a smaller value of the metric is better."""
    return any(part in metric for part in LOWER_IS_BETTER)


def summarise(runs: Sequence[dict[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """Return, for each objective and metric, `mean`, `sd`, `n` and `difference` from the baseline.

    `difference` has the mean of the differences between runs of the same seed, and their 95 % interval by
    Student's t; the interval is None with fewer than two seeds, the whole None for the baseline itself.

    Args:
        runs: As in `results.json`: `objective`, `seed`, `metrics`.
        baseline: Name of the objective to compare with.
    """
    values: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        for metric, value in run["metrics"].items():
            values.setdefault(run["objective"], {}).setdefault(metric, {})[run["seed"]] = value
    reference = values.get(baseline, {})
    summary: dict[str, dict[str, Any]] = {}
    for objective, metrics in values.items():
        summary[objective] = {}
        for metric, by_seed in metrics.items():
            found = list(by_seed.values())
            differences = [
                value - reference[metric][seed]
                for seed, value in by_seed.items()
                if seed in reference.get(metric, {})
            ]
            summary[objective][metric] = {
                "mean": statistics.fmean(found),
                "sd": statistics.stdev(found) if len(found) > 1 else None,
                "n": len(found),
                "difference": paired(differences) if differences and objective != baseline else None,
            }
    return summary


def paired(differences: Sequence[float]) -> dict[str, Any]:
    """Return the mean of paired differences and its 95 % t interval (None with fewer than two pairs)."""
    n = len(differences)
    mean = statistics.fmean(differences)
    if n < 2:
        return {"mean": mean, "ci95": None, "n": n}
    half = student_t(n - 1) * statistics.stdev(differences) / math.sqrt(n)
    return {"mean": mean, "ci95": [mean - half, mean + half], "n": n}


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    Raises:
        UserError: If scipy is not installed.
    """
    try:
        from scipy.stats import t
    except ImportError as error:
        raise UserError(
            'intervals need the package scipy, which is not installed: run `pip install "numsft[report]"`'
        ) from error
    return float(t.ppf(0.975, degrees))
