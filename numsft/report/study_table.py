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

NEUTRAL = ("digit_entropy", "digit_logit")
"""Metrics of which neither more nor less is better."""


def study_table(results: Mapping[str, Any]) -> str:
    """Return the Markdown tables of a `results.json`."""
    summary, baseline = results["summary"], results["baseline"]
    parts = []
    for metric in shown_metrics(summary):
        heading = METRICS[metric][0]
        if metric not in NEUTRAL:
            heading += f", {'lower' if falls(metric) else 'higher'} is better"
        rows = []
        for objective, entry in _ranked(summary, metric):
            if metric == "token_loss" and not _same_token_loss(results["objectives"], objective, baseline):
                continue
            cell = entry[metric]
            rows.append(
                [
                    f"**{objective}**" if objective == baseline else objective,
                    mean_text(cell, metric),
                    str(cell["n"]),
                    difference_text(cell["difference"], metric),
                ]
            )
        header = [heading, "mean ± sd", "seeds", f"against {baseline} (95 %)"]
        parts.append(markdown(header, rows))
    missing = len(results.get("missing", []))
    note = f"Differences are paired by seed, with Student's t interval; {len(results['seeds'])} seeds." + (
        f" {missing} runs are not finished." if missing else ""
    )
    return "\n\n".join([*parts, note]) + "\n"


def shown_metrics(summary: Mapping[str, Any]) -> list[str]:
    """Return the metrics of `METRICS` that some run has, without those that repeat an earlier one's figures.

    Where every text holds one number, `answer_log_mae` is `log_mae`.
    """
    shown: list[str] = []
    for metric in METRICS:
        figures = [entry.get(metric) for entry in summary.values()]
        repeated = any(figures == [entry.get(other) for entry in summary.values()] for other in shown)
        if any(figures) and not repeated:
            shown.append(metric)
    return shown


def _same_token_loss(objectives: Mapping[str, Any], objective: str, baseline: str) -> bool:
    """Whether two objectives minimise the same token loss, so that its values can be compared."""
    keys = ("token_loss", "token_loss_kwargs")
    one, other = ([objectives[name].get(key) for key in keys] for name in (objective, baseline))
    return one == other


def _ranked(summary: Mapping[str, Any], metric: str) -> list[tuple[str, Any]]:
    found = [(name, entry) for name, entry in summary.items() if metric in entry]
    return sorted(found, key=lambda item: item[1][metric]["mean"], reverse=not falls(metric))


def mean_text(cell: Mapping[str, Any], metric: str, *, deviation: bool = True) -> str:
    """Return the mean of a cell of the summary and, unless there is one run, its standard deviation."""
    _, factor, decimals = METRICS[metric]
    spread = f" ± {factor * cell['sd']:.{decimals}f}" if deviation and cell["sd"] is not None else ""
    return f"{factor * cell['mean']:.{decimals}f}{spread}"


def difference_text(difference: Mapping[str, Any] | None, metric: str) -> str:
    """Return a paired difference from the baseline with its interval, "" where there is none."""
    if difference is None:
        return ""
    _, factor, decimals = METRICS[metric]
    text = f"{factor * difference['mean']:+.{decimals}f}"
    if difference["ci95"] is None:
        return text
    low, high = difference["ci95"]
    return f"{text} ({factor * low:+.{decimals}f} to {factor * high:+.{decimals}f})"
