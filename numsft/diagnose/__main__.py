"""Reports a model's number vocabulary, its logits at digits, and what a number loss would do to them.

    python -m numsft.diagnose HuggingFaceTB/SmolLM2-135M-Instruct --output_dir diagnosis

Writes diagnose.json, entropy.png and digit_embeddings.png.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from numsft.console import Parser, failed
from numsft.errors import UserError

_DTYPES = ("auto", "float32", "bfloat16", "float16")


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        options = _parser().parse_args(argv)
        result = diagnose(options)
    except UserError as error:
        return failed(error)
    print("\n".join(result))
    return 0


def _parser() -> argparse.ArgumentParser:
    from numsft.losses import NUMBER_LOSSES

    parser = Parser(
        prog="python -m numsft.diagnose",
        description="Show a model's number tokens, its logits and entropy at digits, its digit embeddings, "
        "and where a number loss pushes the right digit down.",
    )
    parser.add_argument("model", metavar="MODEL", help="Hub id, folder, package:NAME or adapter folder")
    parser.add_argument("--gguf_file", metavar="F", help="GGUF file in the model's folder")
    parser.add_argument(
        "--number_loss", default="del", metavar="L", help=f"{', '.join(NUMBER_LOSSES)} or none; default del"
    )
    parser.add_argument(
        "--number_loss_kwargs", default="{}", metavar="JSON", help="its options: '{\"level\": 10}'"
    )
    parser.add_argument("--number_loss_weight", type=float, metavar="W", help="default: the loss's own")
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="UTF-8 text, a row a line; default: 60 sentences of arithmetic",
    )
    parser.add_argument("--dtype", choices=_DTYPES, default="auto", help="default: the checkpoint's own")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="O", help="folder for the report")
    return parser


def diagnose(options: argparse.Namespace) -> list[str]:
    """Measure, write the report's files, and return its lines.

    What can be wrong is looked at in the order of its cost: the model is loaded last.

    Raises:
        UserError: Before anything is written.
    """
    from numsft.diagnose.text import read_rows

    output_dir: Path = options.output_dir
    _check_output(output_dir)
    rows = read_rows(options.text)

    import torch
    from transformers.utils import logging as transformers_logging

    from numsft.diagnose import embeddings, measure, plots, report
    from numsft.models import find_model, load_adapter_or_model, load_tokenizer
    from numsft.numerals import NumberVocab

    objective = _objective(options)
    plots.check_matplotlib()
    source = find_model(options.model, options.gguf_file)
    # The report is on stdout; of the libraries' chatter on stderr only errors are of use.
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    tokenizer = load_tokenizer(options.model, options.gguf_file)
    try:
        vocab = NumberVocab.from_tokenizer(tokenizer)
        objective.check_vocab(vocab)
    except ValueError as error:
        raise UserError(str(error)) from error
    model: Any = load_adapter_or_model(options.model, options.gguf_file, dtype=options.dtype)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")

    readings = measure.read_logits(model, tokenizer, vocab, rows, objective)
    effect = measure.loss_effect(readings, vocab, objective) if objective.number_loss else None
    maps: dict[str, embeddings.DigitMap | None] | None = None
    if ids := embeddings.digit_ids(vocab):
        inputs, outputs = embeddings.digit_vectors(model, ids)
        maps = {
            "input": embeddings.digit_map(inputs),
            "lm_head": None if outputs is None else embeddings.digit_map(outputs),
        }
    text = "built-in sentences" if options.text is None else str(options.text)
    result = report.figures(source, text, vocab, objective, readings, effect, maps)
    title = Path(options.model).name if Path(options.model).exists() else options.model
    files = {"entropy.png": plots.entropy_png(readings, title)}
    if maps is not None:
        files["digit_embeddings.png"] = plots.embeddings_png(maps, title)
    files["diagnose.json"] = (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()
    _write(output_dir, files)
    return [*report.lines(result), f"written: {', '.join(str(output_dir / name) for name in files)}"]


def _objective(options: argparse.Namespace) -> Any:
    from numsft.objective import Objective

    try:
        loss_options = json.loads(options.number_loss_kwargs)
    except ValueError:
        loss_options = None
    if not isinstance(loss_options, dict):
        raise UserError(
            f"--number_loss_kwargs is {options.number_loss_kwargs!r}, "
            "expected JSON such as '{\"level\": 10}'"
        )
    loss_options = {
        name: tuple(value) if isinstance(value, list) else value for name, value in loss_options.items()
    }
    try:
        return Objective.build(
            "ce",
            options.number_loss,
            number_loss_kwargs=loss_options,
            number_loss_weight=options.number_loss_weight,
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _check_output(folder: Path) -> None:
    for parent in (folder, *folder.parents):
        if parent.is_dir():
            return
        if parent.exists():
            raise UserError(f"--output_dir {folder} cannot be made, since {parent} is a file: name a folder")


def _write(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UserError(
            f"cannot write to --output_dir {folder} ({error.strerror}): name a writable folder"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
