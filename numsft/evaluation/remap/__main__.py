"""Writes remapped GSM8K questions and their controls to a file, and prints how many could be remapped.

    python -m numsft.evaluation.remap --data_dir data --split test --variants 3 --seed 0 --output remap.jsonl

One JSON object a line: index, variant, kind, original_question, question, answer, original_answer,
numeral_map, level.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from numsft.console import Parser, failed
from numsft.errors import RunError, UserError
from numsft.evaluation.remap.items import LEVELS, SPLITS, coverage_table, read_gsm8k, remap_rows
from numsft.evaluation.store import write_output


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = Parser(prog="python -m numsft.evaluation.remap", description="Remap the numerals of GSM8K.")
    parser.add_argument(
        "--data_dir", type=Path, default=None, metavar="D", help="holds gsm8k/; or NUMSFT_DATA_DIR"
    )
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--variants", type=int, default=1, metavar="N", help="remappings an item")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--level",
        type=int,
        default=None,
        metavar="L",
        help="number range instead of small steps: 1 keeps the digits, L from 2 on draws L + 1 of them",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.jsonl")
    try:
        options = parser.parse_args(argv)
        _check(options)
        items = read_gsm8k(options.data_dir, options.split)
        rows, counts = remap_rows(items, options.variants, options.seed, options.level)
        write_output(options.output, rows)
    except (UserError, RunError) as error:
        return failed(error)
    print(coverage_table(counts, len(items)))
    print(f"{len(rows)} rows in {options.output}", file=sys.stderr)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.data_dir is None:
        if not os.environ.get("NUMSFT_DATA_DIR"):
            raise UserError("no --data_dir and no NUMSFT_DATA_DIR; name the folder that holds gsm8k/.")
        options.data_dir = Path(os.environ["NUMSFT_DATA_DIR"])
    if not 1 <= options.variants <= 100:
        raise UserError(f"--variants is {options.variants}; expected 1 to 100.")
    if options.level is not None and options.level not in LEVELS:
        raise UserError(f"--level is {options.level}; expected {LEVELS[0]} to {LEVELS[-1]}, or none.")
    if options.output.is_dir():
        raise UserError(f"--output {options.output} is a folder; name a file in it, such as remap.jsonl.")


if __name__ == "__main__":
    sys.exit(main())
