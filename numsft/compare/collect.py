"""What the runs of a study left in their folders, as the content of `results.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numsft.compare.runs import Run, runs_of
from numsft.compare.statistics import summarise
from numsft.compare.study import Study
from numsft.errors import UserError
from numsft.evaluation.nupa import extract_answer
from numsft.evaluation.scores import benchmark_scores, versions
from numsft.recipes import recipe_values

Curve = dict[str, list[float]]


def collect(study: Study, output_dir: Path) -> dict[str, Any]:
    """Return the content of `results.json` for the runs that are finished.

    `base` is what the base recipe sets; `given` names the keys that the command line set, without their
    values, as a path says nothing to a reader. The rest holds, for each run, its last evaluation, the scores
    of its generated held-out items and its learning curves (`{"step": [...], "value": [...]}`), and for each
    objective mean, standard deviation and the paired difference from the baseline.

    Raises:
        UserError: If no run is finished, or one lacks its files.
    """
    runs = [read_run(run) for run in runs_of(study, output_dir) if run.finished]
    if not runs:
        raise UserError(f"{output_dir} holds no finished run of {study.path}: run the study first")
    return {
        "study": study.name,
        "baseline": study.baseline,
        "base": recipe_values(study.base),
        "objectives": {name: study.overrides | values for name, values in study.objectives.items()},
        "given": sorted(study.given),
        "seeds": list(study.seeds),
        "missing": [
            {"objective": run.objective, "seed": run.seed}
            for run in runs_of(study, output_dir)
            if not run.finished
        ],
        "versions": versions(),
        "summary": summarise(runs, study.baseline),
        "runs": runs,
    }


def read_run(run: Run) -> dict[str, Any]:
    """Return the metrics, curves and places of one run."""
    log = read_log(run.folder)
    curves = evaluation_curves(log)
    metrics = {name: curve["value"][-1] for name, curve in curves.items()}
    runtime = [entry["train_runtime"] for entry in log if "train_runtime" in entry]
    if runtime:
        metrics["train_runtime"] = runtime[-1]
    places: dict[str, Any] = {}
    held_out = run.folder / "held_out.jsonl"
    if held_out.exists():
        scored, places = score_held_out(held_out)
        metrics |= scored
    return {
        "objective": run.objective,
        "seed": run.seed,
        "metrics": metrics,
        "places": places,
        "curves": curves,
    }


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the `log_history` of a run's `trainer_state.json`.

    Raises:
        UserError: If it is not there or no JSON.
    """
    path = folder / "trainer_state.json"
    try:
        history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}): name the folder of a finished run"
        ) from error
    return list(history)


def evaluation_curves(log: Iterable[dict[str, Any]]) -> dict[str, Curve]:
    """Return the curve of every evaluation metric, named without `eval_`; times and rates are left out."""
    curves: dict[str, Curve] = {}
    for entry in log:
        for key, value in entry.items():
            name = key.removeprefix("eval_")
            if name == key or name.endswith(("runtime", "per_second", "num_tokens")) or value is None:
                continue
            curve = curves.setdefault(name, {"step": [], "value": []})
            curve["step"].append(entry["step"])
            curve["value"].append(value)
    return curves


def score_held_out(path: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics and places of the held-out items as generated after training.

    `path` has one object a line: `gold`, `after` (what the model wrote) and `first` (whether its answer is
    the first number of the text, or the last).
    """
    from numsft.data import last_number

    rows = []
    for index, line in enumerate(path.read_text(encoding="utf-8").strip().split("\n")):
        item = json.loads(line)
        answer = (extract_answer if item["first"] else last_number)(item["after"]) or ""
        rows.append(
            {
                "benchmark": "held_out",
                "index": index,
                "gold": item["gold"],
                "extracted": answer,
                "correct": bool(item["correct"]),
                "answered": bool(answer),
            }
        )
    scored = benchmark_scores(rows)
    metrics = {
        "exact_match": scored["accuracy"],
        "answered": scored["answered"],
        **{f"generated_log_mae_{name}": value for name, value in scored["log_mae"].items()},
        "length_accuracy": scored["length_accuracy"],
    }
    return {name: value for name, value in metrics.items() if value is not None}, scored["places"]
