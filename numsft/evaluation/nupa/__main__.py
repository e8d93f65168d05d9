"""Writes number tasks to a file.

    python -m numsft.evaluation.nupa --split test --per_length 100 --seed 0 --output nupa_test.jsonl

One JSON object a line: representation, task, length, range, operands, prompt, answer.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from numsft.console import Parser, failed
from numsft.errors import UserError
from numsft.evaluation.nupa.generate import SPLITS, items, lengths_of
from numsft.evaluation.nupa.tasks import TASKS
from numsft.evaluation.store import write_output


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = Parser(prog="python -m numsft.evaluation.nupa", description="Write NUPA-style number tasks.")
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--per_length", type=int, required=True, help="rows a task and length")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tasks", nargs="+", default=list(TASKS), metavar="TASK", help="default: all of them"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.jsonl")
    try:
        options = parser.parse_args(argv)
        count = write(options.output, options.tasks, options.split, options.per_length, options.seed)
    except UserError as error:
        return failed(error)
    print(f"{count} rows in {options.output}", file=sys.stderr)
    return 0


def write(output: Path, tasks: list[str], split: str, per_length: int, seed: int) -> int:
    """Writes up to `per_length` rows of each task and length of the split; returns how many there were."""
    if per_length < 1:
        raise UserError(f"--per_length is {per_length}; expected 1 or more")
    if unknown := [task for task in tasks if task not in TASKS]:
        raise UserError(f"--tasks names {unknown[0]!r}; expected some of {', '.join(TASKS)}")
    if output.is_dir():
        raise UserError(f"--output {output} is a folder; name a file in it, such as {output / 'nupa.jsonl'}")
    return write_output(
        output,
        (
            row
            for task in tasks
            for length in lengths_of(task, split)
            for row in islice(items(task, length, split, seed), per_length)
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
