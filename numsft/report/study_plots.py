"""The pictures of a study. matplotlib is imported here alone."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numsft.evaluation.plots import STYLE, pyplot

_ONE, _OTHERS, _BASELINE = "#0072B2", "#cccccc", "#D55E00"
_SERIES = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DPI = 150
_FEWEST = 10


def write_study_plots(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `curves.png`, `places.png`, `digit_entropy.png`, `difference.png` and `sweep.png`, if not empty.

    Args:
        results: The content of a `results.json`.
        folder: Where to.

    Raises:
        UserError: If matplotlib is not installed.
    """
    plt = pyplot()
    pictures: dict[str, Callable[[], Any]] = {
        "curves": lambda: _curves(plt, results, {"digit_accuracy": "digit accuracy", "log_mae": "log-MAE"}),
        "places": lambda: _places(plt, results),
        "digit_entropy": lambda: _curves(plt, results, {"digit_entropy": "digit entropy (nats)"}),
        "difference": lambda: _differences(plt, results),
        "sweep": lambda: _sweep(plt, results),
    }
    written = []
    for name, draw in pictures.items():
        with plt.rc_context(STYLE):
            figure = draw()
            if figure is not None:
                written.append(folder / f"{name}.png")
                figure.savefig(written[-1], dpi=_DPI, bbox_inches="tight", pad_inches=0.1)
                plt.close(figure)
    return written


def mean_curve(runs: Sequence[Mapping[str, Any]], metric: str) -> tuple[list[float], list[float]]:
    """Return steps and the mean over runs at each step that all of them have."""
    curves = [
        dict(zip(run["curves"][metric]["step"], run["curves"][metric]["value"], strict=True))
        for run in runs
        if metric in run["curves"]
    ]
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return steps, [statistics.fmean(curve[step] for curve in curves) for step in steps]


def _by_objective(results: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in results["runs"]:
        groups.setdefault(run["objective"], []).append(run)
    return groups


def _curves(plt: Any, results: Mapping[str, Any], metrics: Mapping[str, str]) -> Any:
    """One panel an objective and metric: its mean over seeds, the baseline, and all others in grey."""
    groups, baseline = _by_objective(results), results["baseline"]
    metrics = {
        metric: label
        for metric, label in metrics.items()
        if any(len(mean_curve(runs, metric)[0]) > 1 for runs in groups.values())
    }
    names = [name for name in groups if name != baseline] or list(groups)
    if not metrics:
        return None
    columns = min(4, len(names))
    lines = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        lines * len(metrics),
        columns,
        figsize=(2.3 * columns + 0.6, 1.8 * lines * len(metrics) + 0.5),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="none",
    )
    for block, (metric, label) in enumerate(metrics.items()):
        curves = {name: mean_curve(runs, metric) for name, runs in groups.items()}
        values = [value for _, curve in curves.values() for value in curve]
        margin = 0.05 * (max(values) - min(values) or 1)
        panels = list(grid[block * lines : (block + 1) * lines].flat)
        for axes, name in zip(panels, names, strict=False):
            for other, (steps, curve) in curves.items():
                if other not in (name, baseline):
                    axes.plot(steps, curve, color=_OTHERS, linewidth=0.8)
            axes.plot(*curves[baseline], color=_BASELINE, linewidth=1.4)
            axes.plot(*curves[name], color=_ONE, linewidth=1.8)
            axes.set_title(name, loc="left", fontsize=9)
            axes.set_ylim(min(values) - margin, max(values) + margin)
            axes.tick_params(labelsize=8)
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        for row in grid[block * lines : (block + 1) * lines]:
            row[0].set_ylabel(label, fontsize=9)
    figure.supxlabel("optimiser step", fontsize=10)
    handles = [
        plt.Line2D([], [], color=_ONE, linewidth=1.8, label="the panel's objective"),
        plt.Line2D([], [], color=_BASELINE, linewidth=1.4, label=baseline),
        plt.Line2D([], [], color=_OTHERS, linewidth=0.8, label="the others"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def _panels(plt: Any, count: int, width: float, names: Sequence[str]) -> tuple[Any, Any]:
    """Return a figure of `count` panels side by side and these, one row an objective, the first on top."""
    figure, grid = plt.subplots(
        1,
        count,
        figsize=(width * count + 1.8, 0.9 + 0.3 * len(names)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for axes in grid[0]:
        axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
        axes.tick_params(axis="y", length=0)
    grid[0][0].set_yticks(range(len(names)), names)
    grid[0][0].set_ylim(len(names) - 0.5, -0.5)
    return figure, grid[0]


def _places(plt: Any, results: Mapping[str, Any]) -> Any:
    """Digit error by place, one row an objective, one panel a place; a dot a seed and a bar at the mean.

    A place is left out where a run has fewer than `_FEWEST` digits: its mean would be one of a few numbers.
    """
    groups = {name: [run for run in runs if run["places"]] for name, runs in _by_objective(results).items()}
    groups = {name: runs for name, runs in groups.items() if runs}
    every = [run["places"] for runs in groups.values() for run in runs]
    found = {
        int(place)
        for place in (every[0] if every else ())
        if all(places.get(place, {"n": 0})["n"] >= _FEWEST for places in every)
    }
    if not found:
        return None
    shown, names = sorted(found, reverse=True), list(groups)
    figure, panels = _panels(plt, len(shown), 1.7, names)
    for axes, place in zip(panels, shown, strict=True):
        for row, name in enumerate(names):
            values = [run["places"][str(place)]["mae"] for run in groups[name]]
            color = _BASELINE if name == results["baseline"] else _ONE
            axes.plot(values, [row] * len(values), "o", color=color, markersize=4, alpha=0.5)
            axes.plot(statistics.fmean(values), row, "|", color=color, markersize=12, markeredgewidth=2)
        axes.set_title(f"$10^{{{place}}}$", loc="left")
        axes.set_xlim(left=0)
    figure.supxlabel(
        "mean error of a digit (0 to 9) in generated answers, by place; a dot a seed", fontsize=10
    )
    return figure


def _differences(plt: Any, results: Mapping[str, Any]) -> Any:
    """Paired difference from the baseline with its interval, one row an objective, one panel a metric."""
    from numsft.report.study_table import METRICS, shown_metrics

    summary = results["summary"]
    names = [name for name in summary if name != results["baseline"]]
    metrics = [
        metric
        for metric in shown_metrics(summary)
        if metric in ("exact_match", "digit_accuracy", "log_mae", "answer_log_mae")
        and any((summary[name].get(metric) or {}).get("difference") for name in names)
    ]
    if not metrics:
        return None
    figure, panels = _panels(plt, len(metrics), 2.6, names)
    for axes, metric in zip(panels, metrics, strict=True):
        heading, factor, _ = METRICS[metric]
        for row, name in enumerate(names):
            difference = (summary[name].get(metric) or {}).get("difference")
            if not difference:
                continue
            if difference["ci95"]:
                axes.plot([factor * end for end in difference["ci95"]], [row, row], color=_ONE, linewidth=2)
            axes.plot(factor * difference["mean"], row, "o", color=_ONE, markersize=6)
        axes.axvline(0, color=_BASELINE, linewidth=1.2)
        axes.set_title(heading, loc="left", fontsize=9)
    figure.supxlabel(
        f"difference from {results['baseline']}, paired by seed, with 95 % interval", fontsize=10
    )
    return figure


def sweeps(objectives: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, dict[float, str]]]:
    """Return the number that objectives differ in, and each series of three or more: value -> objective.

    Objectives belong to one series if they have the same settings but for that number, such as
    `number_loss_weight`. A series is named like its first objective, without the number that ends it. The key
    is "" where there is no series.
    """
    numbers = {
        key
        for settings in objectives.values()
        for key, value in settings.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    found: tuple[str, dict[str, dict[float, str]]] = ("", {})
    for key in sorted(numbers):
        groups: dict[str, dict[float, str]] = {}
        for name, settings in objectives.items():
            if key in settings:
                rest = repr(sorted((k, v) for k, v in settings.items() if k != key))
                groups.setdefault(rest, {})[float(settings[key])] = name
        series = {
            re.sub(r"[_.+-]?[\d.][\d.e+-]*$", "", next(iter(points.values()))) or key: dict(
                sorted(points.items())
            )
            for points in groups.values()
            if len(points) >= 3
        }
        if sum(map(len, series.values())) > sum(map(len, found[1].values())):
            found = key, series
    return found


def _sweep(plt: Any, results: Mapping[str, Any]) -> Any:
    """The metrics over a number that objectives differ in, a line a series, the baseline level."""
    from numsft.report.study_table import METRICS

    key, series = sweeps(results["objectives"])
    summary, baseline = results["summary"], results["baseline"]
    metrics = [
        metric
        for metric in ("digit_accuracy", "answer_log_mae", "digit_entropy", "digit_logit")
        if any(metric in entry for entry in summary.values())
    ]
    if not series or not metrics:
        return None
    figure, panels = plt.subplots(
        1, len(metrics), figsize=(2.9 * len(metrics), 2.9), layout="constrained", squeeze=False
    )
    values = sorted({value for points in series.values() for value in points})
    swept = {name for points in series.values() for name in points.values()}
    for axes, metric in zip(panels[0], metrics, strict=True):
        heading, factor, _ = METRICS[metric]
        for (name, points), color, marker in zip(series.items(), _SERIES, "osD^v", strict=False):
            shown = [
                (x, factor * summary[one][metric]["mean"]) for x, one in points.items() if one in summary
            ]
            axes.plot(*zip(*shown, strict=True), color=color, marker=marker, linewidth=1.6, label=name)
        if baseline not in swept and metric in summary.get(baseline, {}):
            level = factor * summary[baseline][metric]["mean"]
            axes.axhline(level, color=_BASELINE, linewidth=1.2, linestyle="--", label=baseline)
        axes.set_xscale("log")
        if max(values) < 30 * min(values):  # too narrow for powers of ten as ticks
            axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.set_minor_formatter(lambda value, position: "")
        axes.set_title(heading, loc="left", fontsize=9)
        axes.grid(color="#e5e5e5", linewidth=0.8)
        axes.tick_params(labelsize=8)
    figure.supxlabel(key.replace("_", " "), fontsize=10)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=9)
    return figure
