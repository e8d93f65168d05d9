"""The table of a study: mean and deviation over seeds, and the paired difference from the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numsft.compare.statistics import falls
from numsft.evaluation.table import markdown

METRICS = {
    "exact_match": ("exact match, generated (%)", 100.0, 1),
    "generated_log_mae_log10p1": ("log-MAE, generated", 1.0, 3),
    "digit_accuracy": ("digit accuracy (%)", 100.0, 1),
    "answer_accuracy": ("answers right in every digit, teacher-forced (%)", 100.0, 1),
    "log_mae": ("log-MAE, teacher-forced", 1.0, 3),
    "answer_log_mae": ("log-MAE of the answer, teacher-forced", 1.0, 3),
    "digit_entropy": ("digit entropy (nats)", 1.0, 3),
    "token_loss": ("token loss", 1.0, 3),
    "digit_logit": ("mean digit logit", 1.0, 1),
}
"""Metric -> heading, factor, decimals; a metric that no run has is left out."""


def study_table(results: Mapping[str, Any]) -> str:
    """Return the Markdown tables of a `results.json`."""
    summary, baseline = results["summary"], results["baseline"]
    shown = [metric for metric in METRICS if any(metric in entry for entry in summary.values())]
    parts = []
    for metric in shown:
        heading, factor, decimals = METRICS[metric]
        better = "lower" if falls(metric) else "higher"
        rows = []
        for objective, entry in _ranked(summary, metric):
            cell, difference = entry[metric], entry[metric]["difference"]
            spread = "" if cell["sd"] is None else f" ± {factor * cell['sd']:.{decimals}f}"
            rows.append(
                [
                    f"**{objective}**" if objective == baseline else objective,
                    f"{factor * cell['mean']:.{decimals}f}{spread}",
                    str(cell["n"]),
                    _difference(difference, factor, decimals),
                ]
            )
        header = [f"{heading}, {better} is better", "mean ± sd", "seeds", f"against {baseline} (95 %)"]
        parts.append(markdown(header, rows))
    missing = len(results.get("missing", []))
    note = f"Differences are paired by seed, with Student's t interval; {len(results['seeds'])} seeds." + (
        f" {missing} runs are not finished." if missing else ""
    )
    return "\n\n".join([*parts, note]) + "\n"


def _ranked(summary: Mapping[str, Any], metric: str) -> list[tuple[str, Any]]:
    found = [(name, entry) for name, entry in summary.items() if metric in entry]
    return sorted(found, key=lambda item: item[1][metric]["mean"], reverse=not falls(metric))


def _difference(difference: Mapping[str, Any] | None, factor: float, decimals: int) -> str:
    if difference is None:
        return ""
    text = f"{factor * difference['mean']:+.{decimals}f}"
    if difference["ci95"] is None:
        return text
    low, high = difference["ci95"]
    return f"{text} ({factor * low:+.{decimals}f} to {factor * high:+.{decimals}f})"
