"""The scores as pictures, one run or several side by side. matplotlib is imported here alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.table import title

# Okabe and Ito's palette, told apart with any colour vision; the markers tell runs apart without colour.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "D", "^", "v", "P")
_TEXTS = {"generated": "generated", "teacher_forced": "teacher-forced"}
_GREY = "#555555"
_DPI = 150
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
}

Runs = Mapping[str, Mapping[str, Any]]
"""Name of a run -> the content of its `scores.json`."""


def write_plots(runs: Runs, folder: str | Path) -> list[Path]:
    """Write `accuracy.png` and, where there is something to show, `places.png` and `entropy.png`.

    Args:
        runs: Up to six runs, in the order of their drawing.
        folder: Made if needed.

    Returns:
        The files written.

    Raises:
        UserError: If matplotlib is not installed, or there are more runs than colours.
    """
    if len(runs) > len(_COLORS):
        raise UserError(
            f"{len(runs)} runs in one picture; expected at most {len(_COLORS)}: name fewer folders"
        )
    plt = _pyplot()
    written = []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, draw in (("accuracy", _accuracy), ("places", _place_errors), ("entropy", _entropy)):
        with plt.rc_context(_STYLE):
            figure = draw(plt, runs)
            if figure is not None:
                written.append(Path(folder) / f"{name}.png")
                figure.savefig(written[-1], dpi=_DPI, bbox_inches="tight", pad_inches=0.1)
                plt.close(figure)
    return written


def _accuracy(plt: Any, runs: Runs) -> Any:
    names = _benchmarks(runs, lambda entry: True)
    height = 0.9 + len(names) * max(0.38, 0.24 * len(runs) + 0.14)
    figure, axes = plt.subplots(figsize=(7, height), layout="constrained")
    for number, scores in enumerate(runs.values()):
        points = [
            (row, scores["benchmarks"][name])
            for row, name in enumerate(names)
            if name in scores["benchmarks"]
        ]
        offset = _offset(number, len(runs), 0.6)
        for row, entry in points:
            value, (low, high) = 100 * entry["accuracy"], (100 * end for end in entry["accuracy_ci95"])
            axes.plot([low, high], [row + offset] * 2, color=_COLORS[number], linewidth=2)
            axes.plot(value, row + offset, _MARKERS[number], color=_COLORS[number], markersize=6)
            axes.annotate(
                f"{value:.1f}",
                (high, row + offset),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    sizes = [max(scores["benchmarks"].get(name, {"n": 0})["n"] for scores in runs.values()) for name in names]
    labels = [f"{title(name)}  (n = {n})" for name, n in zip(names, sizes, strict=True)]
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 106)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    modes = " and ".join(dict.fromkeys(scores["mode"] for scores in runs.values()))
    axes.set_xlabel(f"accuracy (%), {modes} mode, with 95 % bootstrap interval")
    _legend(figure, plt, runs)
    return figure


def _place_errors(plt: Any, runs: Runs) -> Any:
    names = _benchmarks(runs, lambda entry: bool(entry.get("n_numeric")))
    if not names:
        return None
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(3.6 * columns + 0.6, 2.7 * lines + 0.4),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    top = 0.0
    for axes, name in zip(grid.flat, names, strict=False):
        entries = {
            number: scores["benchmarks"][name]["places"]
            for number, scores in enumerate(runs.values())
            if name in scores["benchmarks"]
        }
        found = {int(p) for places in entries.values() for p, cell in places.items() if cell["n"]}
        shown = sorted(found, reverse=True)
        for number, places in entries.items():
            for x, place in enumerate(shown):
                cell = places.get(str(place), {"n": 0})
                if not cell["n"]:
                    continue
                at = x + _offset(number, len(runs), 0.6)
                axes.plot([at, at], cell["mae_ci95"], color=_COLORS[number], linewidth=2)
                axes.plot(at, cell["mae"], _MARKERS[number], color=_COLORS[number], markersize=5.5)
                top = max(top, cell["mae_ci95"][1])
        counts = [
            max(places.get(str(place), {"n": 0})["n"] for places in entries.values()) for place in shown
        ]
        axes.set_xticks(
            range(len(shown)),
            [f"$10^{{{place}}}$\n{n}" for place, n in zip(shown, counts, strict=True)],
        )
        axes.set_xlim(-0.6, len(shown) - 0.4)
        axes.set_title(title(name), loc="left")
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        axes.tick_params(axis="x", length=0)
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    grid[0][0].set_ylim(0, max(top * 1.05, 0.1))
    figure.supylabel("mean error of a digit (0 to 9)", fontsize=10)
    figure.supxlabel(
        "place, and number of answers with a digit there; bars are 95 % bootstrap intervals", fontsize=10
    )
    _legend(figure, plt, runs)
    return figure


def _entropy(plt: Any, runs: Runs) -> Any:
    names = _benchmarks(runs, lambda entry: "entropy" in entry)
    if not names:
        return None
    entries = [
        scores["benchmarks"].get(name, {}).get("entropy", {}) for scores in runs.values() for name in names
    ]
    texts = [text for text in _TEXTS if any(text in entry for entry in entries)]
    rows = [(name, number) for name in names for number in range(len(runs))]
    figure, grid = plt.subplots(
        1,
        len(texts),
        figsize=(3.4 * len(texts) + 2.4, 1.2 + 0.34 * len(rows)),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for axes, text in zip(grid[0], texts, strict=True):
        for row, (name, number) in enumerate(rows):
            means = list(runs.values())[number]["benchmarks"].get(name, {}).get("entropy", {}).get(text)
            if not means:
                continue
            digit, other = means["digit_entropy"], means["other_entropy"]
            if digit is not None and other is not None:
                axes.plot([digit, other], [row, row], color="#bbbbbb", linewidth=2, zorder=1)
            if other is not None:
                axes.plot(other, row, "s", color=_COLORS[0], markersize=7)
            if digit is not None:
                axes.plot(digit, row, "o", color=_COLORS[1], markersize=8)
        axes.set_title(_TEXTS[text], loc="left")
        axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
    several = len(runs) > 1
    labels = [f"{title(name)}, {list(runs)[number]}" if several else title(name) for name, number in rows]
    grid[0][0].set_yticks(range(len(rows)), labels)
    grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel("mean entropy over the full vocabulary (nats)", fontsize=10)
    handles = [
        plt.Line2D([], [], marker="o", linestyle="", color=_COLORS[1], markersize=8, label="digits"),
        plt.Line2D([], [], marker="s", linestyle="", color=_COLORS[0], markersize=7, label="other tokens"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _benchmarks(runs: Runs, wanted: Any) -> list[str]:
    found = [
        name for scores in runs.values() for name, entry in scores["benchmarks"].items() if wanted(entry)
    ]
    return list(dict.fromkeys(found))


def _offset(number: int, of: int, width: float) -> float:
    return 0.0 if of == 1 else width * (number / (of - 1) - 0.5)


def _legend(figure: Any, plt: Any, runs: Runs) -> None:
    if len(runs) > 1:
        handles = [
            plt.Line2D([], [], color=color, marker=marker, linewidth=2, label=name)
            for name, color, marker in zip(runs, _COLORS, _MARKERS, strict=False)
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=min(3, len(runs)), frameon=False)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError(
            'the pictures need matplotlib, which is not installed: run `pip install "numsft[report]"`'
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
