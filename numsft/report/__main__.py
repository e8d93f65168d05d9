"""`python -m numsft.report FOLDER...`: rebuild tables and plots in each folder."""

from __future__ import annotations

import sys

from numsft.console import Parser, failed
from numsft.errors import UserError
from numsft.report import report


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = Parser(prog="python -m numsft.report", description="Rebuild tables and plots.")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="of an evaluation, a study or a run")
    try:
        for folder in parser.parse_args(argv).folders:
            for path in report(folder):
                print(path)
    except UserError as error:
        return failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
