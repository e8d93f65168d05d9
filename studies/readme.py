"""Fill the README's tables of the studies from their committed results: `python studies/readme.py`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numsft.report.blocks import with_block
from numsft.report.study_table import difference_text, mean_text

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
    results = read(f"{folder}/results.json")
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
            cells += [
                mean(summary[objective], metric, deviation=True),
                difference(summary[objective], metric),
            ]
        cells += [mean(summary[objective], metric) for metric in PLAIN]
        rows.append("| " + " | ".join(cells) + " |")
    note = (
        f"Mean ± standard deviation over {len(results['seeds'])} seeds (data, adapter and order change with "
        "the seed); differences are paired by seed, with Student's t interval, in **bold** where it excludes "
        f"0. All metrics here are teacher-forced; `{folder}/results.md` has the generated ones too."
    )
    return "\n".join([*rows, "", note])


def mean(entry: Mapping[str, Any], metric: str, *, deviation: bool = False) -> str:
    """Return a metric's mean, and its standard deviation over seeds; a dash where it was not measured."""
    return mean_text(entry[metric], metric, deviation=deviation) if metric in entry else "–"


def difference(entry: Mapping[str, Any], metric: str) -> str:
    """Return the paired difference from the baseline with its interval; bold where that excludes 0."""
    found = entry.get(metric, {}).get("difference")
    text = difference_text(found, metric)
    low, high = (found and found["ci95"]) or (0, 0)
    return f"**{text}**" if low > 0 or high < 0 else text


def shared_figures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures that any findings may name: OBJECTIVE_accuracy, _log_mae, _entropy and _off."""
    figures = {}
    for objective, entry in results["summary"].items():
        figures[f"{objective}_accuracy"] = mean(entry, "digit_accuracy")
        figures[f"{objective}_log_mae"] = mean(entry, "answer_log_mae")
        figures[f"{objective}_entropy"] = mean(entry, "digit_entropy")
        if objective != results["baseline"]:
            for metric, name, scale, digits in (
                ("answer_log_mae", "off", 1, 3),
                ("digit_accuracy", "more", 100, 1),
            ):
                change = scale * entry[metric]["difference"]["mean"]
                figures[f"{objective}_{name}"] = f"{change:+.{digits}f}"
    return figures


def arithmetic_figures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return what `arithmetic/findings.md` names beside the shared figures."""
    limit = read("studies/arithmetic/del_limit.json")
    weights = read("studies/arithmetic/weight/results.json")["summary"]
    early = results["runs"][0]["curves"]["digit_accuracy"]["step"][0]

    def at_first(objective: str) -> str:
        runs = [run["curves"] for run in results["runs"] if run["objective"] == objective]
        return f"{100 * statistics.fmean(curves['digit_accuracy']['value'][0] for curves in runs):.0f}"

    return {
        "del_logit": mean(results["summary"]["del"], "digit_logit"),
        "level": f"{limit['pretrained']['level']:.0f}",
        "multiple": f"{limit['pretrained']['best multiple']:.0f}",
        "left": f"{100 * limit['pretrained']['share left by it']:.1f}",
        "left_ce": f"{100 * limit['ce']['share left by it']:.1f}",
        "left_del": f"{100 * limit['del']['share left by it']:.0f}",
        "ce_seed_accuracy": mean(weights["ce"], "digit_accuracy"),
        "del_smallest_accuracy": mean(weights["del_0.001"], "digit_accuracy"),
        "ntl_was_one_log_mae": mean(weights["ntl_was_1"], "answer_log_mae"),
        "ntl_was_one_accuracy": mean(weights["ntl_was_1"], "digit_accuracy"),
        "ntl_was_tenth_accuracy": mean(weights["ntl_was_0.1"], "digit_accuracy"),
        "early": str(early),
        "del_early": at_first("del"),
        "ce_early": at_first("ce"),
    }


def findings(name: str) -> str:
    """Return a study's `findings.md` with its figures filled in from the results."""
    results = read(f"{STUDIES[name]}/results.json")
    text = (ROOT / "studies" / name / "findings.md").read_text(encoding="utf-8")
    return text.strip().format_map(shared_figures(results) | FIGURES[name](results))


FIGURES: dict[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {"arithmetic": arithmetic_figures}
"""Name of a study -> what its findings name of their own."""


def read(path: str) -> Any:
    """Return a committed JSON file."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def with_tables(text: str) -> str:
    """Return the README with the tables and findings between their markers rewritten."""
    for name, folder in STUDIES.items():
        text = with_block(text, name, study_block(folder))
        text = with_block(text, f"{name} findings", findings(name))
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
