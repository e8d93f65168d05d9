"""Scores a model or an adapter.

python -m numsft.evaluation MODEL --benchmarks gsm8k,svamp --mode strict --data_dir data --output_dir out
python -m numsft.evaluation --rescore out/samples.jsonl --mode paper --data_dir data --output_dir out-paper
python -m numsft.evaluation --compare out-del out-ce --output_dir out
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from numsft.console import Parser, failed
from numsft.errors import RunError, UserError
from numsft.evaluation.benchmarks import BENCHMARKS
from numsft.evaluation.engine import BACKENDS, DTYPES
from numsft.evaluation.prompts import TEMPLATES

NAMES = (*BENCHMARKS, "nupa")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = Parser(
        prog="python -m numsft.evaluation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("model", nargs="?", metavar="MODEL", help="folder, Hub id, package:NAME, or adapter")
    made.add_argument("--rescore", type=Path, metavar="SAMPLES", help="score generated samples again")
    made.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="two folders or samples files"
    )
    made.add_argument("--benchmarks", metavar="A,B", help=f"of {', '.join(NAMES)}; default: gsm8k")
    made.add_argument(
        "--remap", type=Path, metavar="FILE.jsonl", help="also ask what numsft.evaluation.remap has written"
    )
    made.add_argument(
        "--mode", default="strict", choices=("strict", "paper"), help="rules that score; default: strict"
    )
    made.add_argument("--backend", default="hf", choices=BACKENDS, help="what generates; default: hf")
    made.add_argument(
        "--data_dir", help="folder of the benchmark files; default: NUMSFT_DATA_DIR, or download"
    )
    made.add_argument("--output_dir", type=Path, default=Path("evaluation"), help="default: evaluation")
    made.add_argument("--limit", type=int, help="questions of each benchmark; default: all")
    made.add_argument("--batch_size", type=int, default=16, help="prompts at a time; default: 16")
    made.add_argument("--max_new_tokens", type=int, help="default: 1500, and 2048 for multiple choice")
    made.add_argument("--gguf_file", help="name of the GGUF file in the model's folder")
    made.add_argument(
        "--dtype", default="auto", choices=DTYPES, help="of the weights; default: auto, the checkpoint's own"
    )
    made.add_argument("--workers", type=int, help="programs at a time; default: the processor's cores")
    made.add_argument(
        "--allow_no_sandbox",
        action="store_true",
        help="run model-written programs even where they cannot be isolated",
    )
    made.add_argument(
        "--prompt_template", choices=TEMPLATES, help="default: the adapter's recipe's, else alpaca"
    )
    made.add_argument("--nupa_per_length", type=int, default=1, help="number tasks of each task and length")
    made.add_argument("--nupa_seed", type=int, default=0, help="seed of the number tasks")
    made.add_argument("--no_entropy", action="store_true", help="leave the entropies out: one pass less")
    made.add_argument("--push", metavar="USER/NAME", help="add the scores to this model's card on the Hub")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    try:
        options = parser().parse_args(argv)
        asked = [options.model is not None, options.rescore is not None, options.compare is not None]
        if sum(asked) != 1:
            raise UserError("name a MODEL, or --rescore SAMPLES, or --compare A B, and only one of them")
        _check(options)
        if options.compare:
            table = _compare(options)
        else:
            table = _rescore(options) if options.rescore else _evaluate(options)
        print(table)
        print(f"written to {options.output_dir}", file=sys.stderr)
        if options.push:
            from numsft.evaluation.card import push_scores

            print(push_scores(options.output_dir, options.push))
    except (UserError, RunError) as error:
        return failed(error)
    except torch.OutOfMemoryError:
        print(
            "error: the accelerator's memory is full: the same command with a smaller --batch_size goes on "
            "where this one stopped",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("stopped: the same command goes on where this one stopped", file=sys.stderr)
        return 1
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("limit", "batch_size", "max_new_tokens", "workers", "nupa_per_length"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; expected 1 or more")
    if options.push and (options.compare or "/" not in options.push):
        raise UserError(
            "--push names the model whose card gets the scores, USER/NAME; it does not go with --compare"
        )


def benchmark_names(text: str) -> tuple[str, ...]:
    """Return the benchmarks of a comma-separated list.

    Raises:
        UserError: For an unknown name, with the nearest one, or an empty list.
    """
    import difflib

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected some of {', '.join(NAMES)}"
            raise UserError(f"there is no benchmark {name!r}; {hint}")
    if not names:
        raise UserError(f"--benchmarks is empty; expected some of {', '.join(NAMES)}")
    return names


def _evaluate(options: argparse.Namespace) -> str:
    from numsft.evaluation.options import Options
    from numsft.evaluation.output import write_evaluation
    from numsft.evaluation.run import evaluate

    names: tuple[str, ...] = ()
    if options.benchmarks is not None or options.remap is None:
        names = benchmark_names("gsm8k" if options.benchmarks is None else options.benchmarks)
    rows, result = evaluate(
        Options(
            model=options.model,
            benchmarks=names,
            output_dir=options.output_dir,
            mode=options.mode,
            backend=options.backend,
            data_dir=options.data_dir,
            limit=options.limit,
            batch_size=options.batch_size,
            max_new_tokens=options.max_new_tokens,
            gguf_file=options.gguf_file,
            dtype=options.dtype,
            workers=options.workers,
            allow_no_sandbox=options.allow_no_sandbox,
            prompt_template=options.prompt_template,
            nupa_per_length=options.nupa_per_length,
            nupa_seed=options.nupa_seed,
            entropy=not options.no_entropy,
            remap=options.remap,
        )
    )
    return write_evaluation(options.output_dir, rows, result)


def _rescore(options: argparse.Namespace) -> str:
    from numsft.evaluation.output import write_evaluation
    from numsft.evaluation.run import rescore_samples

    rows, result = rescore_samples(
        options.rescore,
        options.output_dir,
        options.mode,
        options.data_dir,
        options.workers,
        options.allow_no_sandbox,
    )
    return write_evaluation(options.output_dir, rows, result)


def _compare(options: argparse.Namespace) -> str:
    from numsft.evaluation.compare import compare
    from numsft.evaluation.output import read_mode, read_rows, write_comparison

    a, b = options.compare
    comparison = compare(read_rows(a), read_rows(b), a_mode=read_mode(a), b_mode=read_mode(b))
    return write_comparison(options.output_dir, comparison, _label(a), _label(b))


def _label(path: Path) -> str:
    return (path if path.is_dir() else path.parent).resolve().name


if __name__ == "__main__":
    sys.exit(main())
