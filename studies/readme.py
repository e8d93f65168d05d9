"""Fill the README's tables of the studies from their committed results: `python studies/readme.py`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numsft.compare.statistics import paired
from numsft.report.blocks import with_block
from numsft.report.study_table import difference_text, mean_text

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


@dataclass(frozen=True)
class Study:
    """What the README shows of a study: metrics with their paired difference, and by their mean alone."""

    folder: str
    compared: Mapping[str, str]
    plain: Mapping[str, str]
    figures: Callable[[Mapping[str, Any]], dict[str, str]]
    """Results -> what the study's findings name beside the shared figures."""


def study_block(study: Study) -> str:
    """Return one table of a study: a row an objective, in the order of the study file."""
    results = read(f"{study.folder}/results.json")
    summary, baseline = results["summary"], results["baseline"]
    header = ["objective"]
    for heading in study.compared.values():
        header += [heading, f"against {baseline} (95 %)"]
    header += study.plain.values()
    rows = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for objective in results["objectives"]:
        if objective not in summary:
            continue
        cells = [f"**{objective}**" if objective == baseline else f"`{objective}`"]
        for metric in study.compared:
            cells += [
                mean(summary[objective], metric, deviation=True),
                difference(summary[objective], metric),
            ]
        cells += [mean(summary[objective], metric) for metric in study.plain]
        rows.append("| " + " | ".join(cells) + " |")
    intervals = (len(summary) - 1) * len(study.compared)
    note = (
        f"Mean ± standard deviation over {len(results['seeds'])} seeds (data, adapter and order change with "
        "the seed); differences are paired by seed, with Student's t interval, in **bold** where it excludes "
        f"0, as {intervals * 0.05:.1f} of {intervals} intervals do by chance. `{study.folder}/results.md` "
        "has more metrics."
    )
    return "\n".join([*rows, "", note])


def mean(entry: Mapping[str, Any], metric: str, *, deviation: bool = False) -> str:
    """Return a metric's mean, and its standard deviation over seeds; a dash where it was not measured."""
    return mean_text(entry[metric], metric, deviation=deviation) if metric in entry else "–"


def difference(entry: Mapping[str, Any], metric: str) -> str:
    """Return the paired difference from the baseline with its interval; bold where that excludes 0."""
    found, text = entry.get(metric, {}).get("difference"), gain(entry, metric)
    low, high = (found and found["ci95"]) or (0, 0)
    return f"**{text}**" if low > 0 or high < 0 else text


def gain(entry: Mapping[str, Any], metric: str) -> str:
    """Return the paired difference from the baseline with its interval, "" where there is none."""
    return difference_text(entry.get(metric, {}).get("difference"), metric)


EARLY = 50
"""An evaluation early in training, at which DEL has moved the digit logits and learnt little."""


def by_run(results: Mapping[str, Any], metric: str) -> dict[tuple[str, int], float]:
    """Return a metric of every run, by objective and seed."""
    return {(run["objective"], run["seed"]): run["metrics"][metric] for run in results["runs"]}


def between(results: Mapping[str, Any], one: str, other: str, metric: str) -> str:
    """Return by how much `one` exceeds `other` in a metric, paired by seed, with its interval."""
    values = by_run(results, metric)
    found = paired([values[one, seed] - values[other, seed] for seed in results["seeds"]])
    return difference_text(found, metric)


def at_step(results: Mapping[str, Any], objective: str, metric: str, step: int) -> float:
    """Return a metric's mean over seeds at an evaluation during training."""
    curves = [run["curves"][metric] for run in results["runs"] if run["objective"] == objective]
    return statistics.fmean(curve["value"][curve["step"].index(step)] for curve in curves)


def shared_figures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures that any findings may name.

    OBJECTIVE_accuracy, _log_mae and _entropy are means; _more and _off what accuracy and log-MAE gain on the
    baseline, with intervals; _closer on how many seeds log-MAE is lower.
    """
    figures, baseline = {}, results["baseline"]
    values = by_run(results, "answer_log_mae")
    for objective, entry in results["summary"].items():
        figures[f"{objective}_accuracy"] = mean(entry, "digit_accuracy")
        figures[f"{objective}_log_mae"] = mean(entry, "answer_log_mae")
        figures[f"{objective}_entropy"] = mean(entry, "digit_entropy")
        if objective != baseline:
            figures[f"{objective}_more"] = gain(entry, "digit_accuracy")
            figures[f"{objective}_off"] = gain(entry, "answer_log_mae")
            lower = sum(values[objective, seed] < values[baseline, seed] for seed in results["seeds"])
            figures[f"{objective}_closer"] = f"{lower} of {len(results['seeds'])}"
    return figures


def arithmetic_figures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return what `arithmetic/findings.md` names beside the shared figures."""
    limit = read("studies/arithmetic/del_limit.json")
    weights = read("studies/arithmetic/weight/results.json")["summary"]
    generated = "generated_log_mae_log10p1"
    return {
        "level": f"{limit['pretrained']['level']:.0f}",
        "multiple": f"{limit['pretrained']['best multiple']:.0f}",
        "left": f"{100 * limit['pretrained']['share left by it']:.1f}",
        "left_ce": f"{100 * limit['ce']['share left by it']:.1f}",
        "left_del": f"{100 * limit['del']['share left by it']:.0f}",
        "held_more": between(results, "del_level_30", "zero_one_places", "digit_accuracy"),
        "held_off": between(results, "del_level_30", "zero_one_places", "answer_log_mae"),
        "ntl_was_generated": gain(results["summary"]["ntl_was"], generated),
        "emo_generated": gain(results["summary"]["emo"], generated),
        "ntl_was_one_log_mae": mean(weights["ntl_was_1"], "answer_log_mae"),
        "ce_seed_log_mae": mean(weights["ce"], "answer_log_mae"),
        "early": str(EARLY),
        "del_early": f"{at_step(results, 'del', 'digit_logit', EARLY):.0f}",
        "del_late": mean(results["summary"]["del"], "digit_logit"),
    }


PLAIN = {
    "answer_accuracy": "answers right (%)",
    "digit_entropy": "digit entropy (nats)",
    "digit_logit": "digit logit",
}
STUDIES = {
    "arithmetic": Study(
        folder="studies/arithmetic/objectives",
        compared={"digit_accuracy": "digit accuracy (%)", "answer_log_mae": "log-MAE"},
        plain=PLAIN,
        figures=arithmetic_figures,
    ),
}
"""Name of the markers in the README, and of the folder with the findings -> the study."""


def findings(name: str) -> str:
    """Return a study's `findings.md` with its figures filled in from the results."""
    study = STUDIES[name]
    results = read(f"{study.folder}/results.json")
    text = (ROOT / "studies" / name / "findings.md").read_text(encoding="utf-8")
    return text.strip().format_map(shared_figures(results) | study.figures(results))


def read(path: str) -> Any:
    """Return a committed JSON file."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def with_tables(text: str) -> str:
    """Return the README with the tables and findings between their markers rewritten."""
    for name, study in STUDIES.items():
        text = with_block(text, name, study_block(study))
        text = with_block(text, f"{name} findings", findings(name))
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
