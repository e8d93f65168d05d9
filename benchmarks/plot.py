"""Draw the results of `head.py`, `step.py` and `scale.py`, a PNG beside each JSON: all, or those named.

python benchmarks/plot.py benchmarks/results/scale_cpu.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from contenders import label  # noqa: E402
from measure import spread  # noqa: E402

from numsft.evaluation.plots import STYLE, pyplot  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
OURS, THEIRS, BARE = "#0072B2", "#D55E00", "#999999"
COLORS = {"numsft_ce_del": OURS, "numsft_ce": "#56B4E9", "trl_ce": THEIRS, "full_ce_del": "#CC79A7"}


def bars(plt: Any, names: Sequence[str], panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Any:
    """One row a contender, one panel a quantity: its median, and a line from the smallest to the largest."""
    figure, grid = plt.subplots(
        1,
        len(panels),
        figsize=(3.1 * len(panels) + 2.6, 0.8 + 0.33 * len(names)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for axes, (heading, values) in zip(grid[0], panels.items(), strict=True):
        for row, name in enumerate(names):
            value = values[name]
            color = OURS if name.startswith("numsft") else BARE if name.startswith("products") else THEIRS
            axes.barh(row, value["median"], height=0.62, color=color)
            axes.plot([value["min"], value["max"]], [row, row], color="#222222", linewidth=1.3)
            axes.annotate(
                f"{value['median']:.3g}" if value["median"] < 100 else f"{value['median']:,.0f}",
                (max(value["max"], value["median"]), row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_title(heading, loc="left", fontsize=9.5)
        axes.margins(x=0.16)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
    grid[0][0].set_yticks(range(len(names)), [label(name).replace("`", "") for name in names])
    grid[0][0].invert_yaxis()
    return figure


def draw_head(plt: Any, result: Mapping[str, Any]) -> Any:
    """Draw the head's time and memory, the backbone taken off."""

    def panel(key: str) -> dict[str, dict[str, float]]:
        values = {}
        for name, runs in result["runs"].items():
            bare = name.startswith("products")
            base = [{key: 0.0}] * len(runs) if bare else result["runs"]["backbone"]
            rounds = [run[key] - zero[key] for run, zero in zip(runs, base, strict=True)]
            values[name] = {
                "median": result["medians"][name]["head_seconds" if key == "seconds" else "head_mib"],
                "min": min(rounds),
                "max": max(rounds),
            }
        return values

    names = [name for name in result["runs"] if name != "backbone"]
    return bars(plt, names, {"seconds a step": panel("seconds"), "peak memory, MiB": panel("peak_mib")})


def draw_step(plt: Any, result: Mapping[str, Any]) -> Any:
    """Draw a whole step's time and the process's peak memory."""
    steps = {
        name if len(result["steps"]) == 1 else f"{name} ({adapter})": measured
        for adapter, contenders in result["steps"].items()
        for name, measured in contenders.items()
    }

    def panel(key: str) -> dict[str, dict[str, float]]:
        return {name: spread([step[key] for step in measured]) for name, measured in steps.items()}

    return bars(
        plt, list(steps), {"seconds a step": panel("seconds"), "peak memory in all, MiB": panel("total_mib")}
    )


def draw_scale(plt: Any, result: Mapping[str, Any]) -> Any:
    """Draw the head's time (a token, on the axis of tokens) and memory along each axis, a line each."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axes_names = list(dict.fromkeys(point["axis"] for point in result["points"]))
    figure, grid = plt.subplots(
        2, len(axes_names), figsize=(3.2 * len(axes_names) + 0.6, 5.4), layout="constrained", squeeze=False
    )
    for column, axis in enumerate(axes_names):
        for row, key in enumerate(("head_seconds", "head_mib")):
            panel = grid[row][column]
            for name in dict.fromkeys(point["contender"] for point in result["points"]):
                found = [p for p in result["points"] if (p["axis"], p["contender"]) == (axis, name)]
                scale = [1e6 / p["value"] if axis == "tokens" and row == 0 else 1.0 for p in found]
                x = [p["value"] for p in found]
                panel.plot(
                    x,
                    [s * p[key]["median"] for s, p in zip(scale, found, strict=True)],
                    marker="o",
                    markersize=4,
                    color=COLORS.get(name, BARE),
                    label=label(name),
                )
                for s, p in zip(scale, found, strict=True):
                    panel.plot(
                        [p["value"]] * 2,
                        [s * p[key]["min"], s * p[key]["max"]],
                        color=COLORS.get(name, BARE),
                        alpha=0.5,
                    )
            panel.set_xscale("log")
            if axis == "classes" or (axis == "tokens" and row == 0):
                panel.set_ylim(bottom=0)
            else:
                panel.set_yscale("log")
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            panel.set_xticks(
                x,
                [f"{value // 1024}k" if value >= 1024 and axis != "classes" else f"{value:,}" for value in x],
            )
            panel.minorticks_off()
            panel.grid(axis="y", color="#e5e5e5", linewidth=0.8)
            panel.tick_params(labelsize=8)
        grid[0][column].set_title(
            "time a token, µs" if axis == "tokens" else "time of a step, s", loc="left", fontsize=9.5
        )
        grid[1][column].set_title("peak memory, MiB", loc="left", fontsize=9.5)
        grid[1][column].set_xlabel({"vocab": "vocabulary", "classes": "number tokens"}.get(axis, axis))
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    return figure


DRAW: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "head": draw_head,
    "step": draw_step,
    "scale": draw_scale,
}
"""What a file's name begins with -> how it is drawn."""


def draw(path: Path) -> Path:
    """Write the picture of one result beside it."""
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure = DRAW[path.name.split("_")[0]](plt, json.loads(path.read_text(encoding="utf-8")))
        figure.savefig(path.with_suffix(".png"), dpi=150, bbox_inches="tight", pad_inches=0.1)
        plt.close(figure)
    return path.with_suffix(".png")


def main() -> None:
    """Draw the files that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=Path, help="JSON files; default: all that are committed")
    args = parser.parse_args()
    every = sorted(path for path in RESULTS.glob("*.json") if path.name.split("_")[0] in DRAW)
    for path in args.results or every:
        print(draw(path))


if __name__ == "__main__":
    main()
