"""The files of an evaluation: `samples.jsonl`, `scores.json`, `scores.md` and the plots."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numsft.errors import UserError
from numsft.evaluation.plots import write_plots
from numsft.evaluation.store import write_atomically, write_rows
from numsft.evaluation.table import compare_table, scores_table

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read `samples.jsonl`, or the one in a folder.

    Raises:
        UserError: If it is not there, or a line is no JSON object.
    """
    path = path / "samples.jsonl" if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines also splits at U+2028 inside a text
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): name a samples.jsonl or its folder") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UserError(f"line {number} of {path} is no JSON object: mend or remove it")
            rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no samples: name one that a run has written")
    return rows


def read_mode(path: Path) -> str | None:
    """Return the mode in the `scores.json` beside samples, None where there is none."""
    folder = path if path.is_dir() else path.parent
    try:
        mode = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["mode"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(mode)


def write_evaluation(folder: Path, rows: Iterable[Row], result: Mapping[str, Any]) -> str:
    """Write rows, scores, table and plots into a folder; return the table.

    Without matplotlib the plots are left out, with a note on stderr.

    Raises:
        UserError: If the folder cannot be written.
    """
    table = scores_table(result)
    _write(folder / "samples.jsonl", rows)
    _write(folder / "scores.json", result)
    _write(folder / "scores.md", table)
    if importlib.util.find_spec("matplotlib") is None:
        print(
            'the plots are left out: they need matplotlib, run `pip install "numsft[report]"`',
            file=sys.stderr,
        )
        return table
    try:
        write_plots({folder.resolve().name: result}, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return table


def write_comparison(folder: Path, comparison: Mapping[str, Any], a: str, b: str) -> str:
    """Write `compare.json` and `compare.md` into a folder; return the table."""
    table = compare_table(comparison, a, b)
    _write(folder / "compare.json", comparison)
    _write(folder / "compare.md", table)
    return table


def _write(path: Path, content: Any) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            write_atomically(path, content)
        elif isinstance(content, Mapping):
            write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        else:
            write_rows(path, content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write {path} ({error.strerror}): name a folder that can be written with --output_dir"
    )
