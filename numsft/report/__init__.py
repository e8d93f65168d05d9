"""Tables and plots, rebuilt from what is in a folder: `scores.json`, `results.json`, `trainer_state.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numsft.errors import UserError

__all__ = ["report"]


def report(folder: str | Path) -> list[Path]:
    """Write the tables and plots of a folder into it.

    * `scores.json` (an evaluation): `scores.md`, `accuracy.png`, `places.png`, `entropy.png`;
    * `results.json` (a study): `results.md`, `curves.png`, `places.png`, `digit_entropy.png`,
      `difference.png`, and `sweep.png` where objectives differ in one number;
    * `trainer_state.json` (a run): `training.png`.

    Returns:
        The files written.

    Raises:
        UserError: If none of these files is there, one cannot be read, or matplotlib is not installed.
    """
    folder = Path(folder)
    written: list[Path] = []
    if (folder / "scores.json").is_file():
        from numsft.evaluation.plots import write_plots
        from numsft.evaluation.table import scores_table

        scores = read_json(folder / "scores.json", "benchmarks")
        (folder / "scores.md").write_text(scores_table(scores), encoding="utf-8")
        written += [folder / "scores.md", *write_plots({folder.resolve().name: scores}, folder)]
    if (folder / "results.json").is_file():
        from numsft.report.study_plots import write_study_plots
        from numsft.report.study_table import study_table

        results = read_json(folder / "results.json", "summary")
        (folder / "results.md").write_text(study_table(results), encoding="utf-8")
        written += [folder / "results.md", *write_study_plots(results, folder)]
    if (folder / "trainer_state.json").is_file():
        from numsft.report.training_plots import write_training_plot

        state = read_json(folder / "trainer_state.json", "log_history")
        written += write_training_plot(state["log_history"], folder)
    if not written:
        raise UserError(
            f"{folder} holds no scores.json, results.json or trainer_state.json: name the output folder of "
            "an evaluation, a study or a run"
        )
    return written


def read_json(path: Path, key: str) -> dict[str, Any]:
    """Read a JSON object that has `key`.

    Raises:
        UserError: If it is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}): write it anew") from error
    if not isinstance(content, dict) or key not in content:
        raise UserError(f"{path} has no {key!r}, so it is not one of ours: name another folder")
    return content
