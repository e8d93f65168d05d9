"""Push a trained folder to the Hub, or merge an adapter into its base.

python -m numsft.hub push outputs/quickstart --hub_model_id USER/NAME
python -m numsft.hub merge outputs/quickstart --output_dir outputs/quickstart-merged
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from numsft.console import Parser, failed
from numsft.errors import RunError, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 (done), 2 (the user's mistake) or 1 (the Hub, the network or the merge)."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR, stream=sys.stderr)
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        options = _parser().parse_args(argv)
        (_push if options.command == "push" else _merge)(options)
    except (UserError, RunError) as error:
        return failed(error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m numsft.hub", description="Push a folder, or merge an adapter.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="push|merge")
    push = commands.add_parser(
        "push",
        help="upload a folder to the Hub",
        description="Upload what a training or a merge wrote. Checkpoint folders, optimiser states, "
        "training_args.bin and a merged copy beside an adapter stay here.",
    )
    push.add_argument("folder", metavar="FOLDER", help="output folder, merged model or checkpoint")
    push.add_argument("--hub_model_id", required=True, metavar="USER/NAME", help="the repository")
    push.add_argument("--hub_revision", metavar="BRANCH", help="default: main")
    push.add_argument(
        "--private", action="store_true", help="make the repository private, where it is not there yet"
    )
    push.add_argument("--token", metavar="T", help="default: HF_TOKEN, or what `hf auth login` stored")
    merge = commands.add_parser(
        "merge",
        help="merge an adapter into its base",
        description="Save base and adapter as one model in the base's precision, and check its logits.",
    )
    merge.add_argument("folder", metavar="FOLDER", help="folder of the adapter")
    merge.add_argument("--output_dir", required=True, metavar="O", help="folder of the merged model, new")
    return parser


def _push(options: argparse.Namespace) -> None:
    from huggingface_hub.utils import logging as client_logging

    from numsft.hub.push import Destination, push_folder

    client_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its retries; what is left of them is in our message
    destination = Destination(
        options.hub_model_id, options.private or None, options.hub_revision, options.token
    )
    print(f"pushed {options.folder} to {push_folder(options.folder, destination)}")


def _merge(options: argparse.Namespace) -> None:
    from transformers.utils import logging as transformers_logging

    from numsft.hub.merge import merge_adapter

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")  # PEFT's own call
    report = merge_adapter(options.folder, options.output_dir)
    print(
        f"merged {options.folder} into {report.folder} ({report.dtype}, embeddings "
        f"{'tied' if report.tied else 'not tied'}); read back, its logits differ from the adapter's by "
        f"{report.difference:.1e} of the largest"
    )


if __name__ == "__main__":
    sys.exit(main())
