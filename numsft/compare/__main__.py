"""`python -m numsft.compare STUDY.yaml [--jobs N] [--output_dir O] [--KEY VALUE]`: a study, table and plots.

Runs what is missing and may be killed and started again at any time. Any key of a recipe given here holds for
every run, such as `--dataset FILE`; the results name such keys but not their values. Writes `results.json`,
`results.md` and plots into the output folder (default: the study's name, beside the study file).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from numsft.compare.collect import collect
from numsft.compare.runs import run_missing
from numsft.compare.study import load_study
from numsft.console import Parser, failed
from numsft.errors import RunError, UserError


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = Parser(
        prog="python -m numsft.compare",
        description="Run and compare objectives over seeds.",
        epilog="Any other --KEY VALUE is a key of the recipe, for every run.",
        allow_abbrev=False,
    )
    parser.add_argument("study", metavar="STUDY.yaml")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--output_dir", type=Path, help="default: the study's name, beside the study file")
    parser.add_argument("--collect_only", action="store_true", help="read what is finished, run nothing")
    try:
        options, given = parser.parse_known_args(argv)
        study = load_study(options.study, given)
        folder = options.output_dir or study.path.with_suffix("")
        if not options.collect_only:
            run_missing(study, folder, options.jobs)
        results = collect(study, folder)
        text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
        (folder / "results.json").write_text(text, encoding="utf-8")
        from numsft.report import report

        for path in report(folder):
            print(path, file=sys.stderr)
        print((folder / "results.md").read_text(encoding="utf-8"))
    except (UserError, RunError) as error:
        return failed(error)
    except KeyboardInterrupt:
        print("stopped: run the same command again to go on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
