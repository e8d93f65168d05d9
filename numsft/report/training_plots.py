"""The training curves of one run. matplotlib is imported here alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numsft.evaluation.plots import STYLE, pyplot

PANELS = {
    "token_loss": "token loss",
    "number_loss": "number loss (without α)",
    "digit_accuracy": "digit accuracy",
    "log_mae": "log-MAE, teacher-forced",
    "digit_entropy": "digit entropy (nats)",
    "digit_logit": "mean digit logit",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
}
_TRAIN, _EVAL = "#0072B2", "#D55E00"


def write_training_plot(log: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write `training.png`: each metric in a panel, training and evaluation.

    Args:
        log: The `log_history` of a `trainer_state.json`.
        folder: Where to.

    Returns:
        The file, or nothing where no metric was logged.

    Raises:
        UserError: If matplotlib is not installed.
    """
    curves = {
        name: [[(e["step"], e[key]) for e in log if e.get(key) is not None] for key in (name, f"eval_{name}")]
        for name in PANELS
    }
    shown = [name for name, pair in curves.items() if any(pair)]
    if not shown:
        return []
    plt = pyplot()
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            lines,
            columns,
            figsize=(2.6 * columns + 0.4, 2.0 * lines + 0.5),
            layout="constrained",
            squeeze=False,
            sharex=True,
        )
        for axes, name in zip(grid.flat, shown, strict=False):
            for points, color in zip(curves[name], (_TRAIN, _EVAL), strict=True):
                if points:
                    marker = "o" if len(points) == 1 else ""
                    axes.plot(*zip(*points, strict=True), color=color, linewidth=1.5, marker=marker)
            axes.set_title(PANELS[name], loc="left", fontsize=9)
            axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
            axes.tick_params(labelsize=8)
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        figure.supxlabel("optimiser step", fontsize=10)
        handles = [
            plt.Line2D([], [], color=_TRAIN, label="training"),
            plt.Line2D([], [], color=_EVAL, label="evaluation"),
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
        figure.savefig(folder / "training.png", dpi=150, bbox_inches="tight", pad_inches=0.1)
        plt.close(figure)
    return [folder / "training.png"]
