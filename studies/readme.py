"""Fill the README's tables of the studies from their committed results: `python studies/readme.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numsft.report.blocks import with_block
from numsft.report.study_table import METRICS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
STUDIES = {"arithmetic": "studies/arithmetic/objectives"}
"""Name of the markers in the README -> folder of the study's results."""

COLUMNS = {"digit_accuracy": "digit accuracy (%)", "answer_log_mae": "log-MAE"}
"""Metrics shown with their paired difference from the baseline."""
PLAIN = {
    "answer_accuracy": "answers right (%)",
    "digit_entropy": "digit entropy (nats)",
    "digit_logit": "digit logit",
}
"""Metrics shown by their mean alone."""


def study_block(folder: str) -> str:
    """Return one table of a study: a row an objective, in the order of the study file."""
    results = json.loads((ROOT / folder / "results.json").read_text(encoding="utf-8"))
    summary, baseline = results["summary"], results["baseline"]
    header = ["objective"]
    for heading in COLUMNS.values():
        header += [heading, f"against {baseline} (95 %)"]
    header += PLAIN.values()
    rows = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for objective in results["objectives"]:
        if objective not in summary:
            continue
        cells = [f"**{objective}**" if objective == baseline else f"`{objective}`"]
        for metric in COLUMNS:
            cells += [mean(summary[objective], metric, sd=True), difference(summary[objective], metric)]
        cells += [mean(summary[objective], metric) for metric in PLAIN]
        rows.append("| " + " | ".join(cells) + " |")
    note = (
        f"Mean ± standard deviation over {len(results['seeds'])} seeds (data, adapter and order change with "
        "the seed); differences are paired by seed, with Student's t interval, in **bold** where it excludes "
        f"0. All but the generated answers are teacher-forced (`{folder}/results.md` has every metric)."
    )
    return "\n".join([*rows, "", note])


def mean(entry: Mapping[str, Any], metric: str, *, sd: bool = False) -> str:
    """Return a metric's mean, and its standard deviation over seeds."""
    if metric not in entry:
        return "–"
    _, factor, decimals = METRICS[metric]
    cell = entry[metric]
    spread = f" ± {factor * cell['sd']:.{decimals}f}" if sd and cell["sd"] is not None else ""
    return f"{factor * cell['mean']:.{decimals}f}{spread}"


def difference(entry: Mapping[str, Any], metric: str) -> str:
    """Return the paired difference from the baseline with its interval; bold where that excludes 0."""
    found = entry.get(metric, {}).get("difference")
    if not found:
        return ""
    _, factor, decimals = METRICS[metric]
    text = f"{factor * found['mean']:+.{decimals}f}"
    if not found["ci95"]:
        return text
    low, high = found["ci95"]
    text += f" ({factor * low:+.{decimals}f} to {factor * high:+.{decimals}f})"
    return f"**{text}**" if low > 0 or high < 0 else text


def with_tables(text: str) -> str:
    """Return the README with the tables between their markers rewritten."""
    for name, folder in STUDIES.items():
        text = with_block(text, name, study_block(folder))
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
