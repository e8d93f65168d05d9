"""`accelerate launch -m numsft.run RECIPE [--key value ...] [--dry_run]`: from a recipe to a model."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numsft.errors import RunError, UserError
from numsft.ranks import lost_a_rank, may_report
from numsft.recipes import (
    Recipe,
    load_recipe,
    resolved_yaml,
    split_arguments,
    write_resolved,
)
from numsft.resume import checkpoint_to_resume
from numsft.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from numsft.data import Datasets
    from numsft.recipe_arguments import RunFlags
    from numsft.trainer import NumSFTTrainer

logger = logging.getLogger("numsft")

_LONGEST_MESSAGE = 900


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 (done), 2 (the user's mistake) or 1 (a fault while training)."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    logger.setLevel(logging.INFO)
    signals = StopSignals()
    try:
        with signals.installed(on_timeout=lambda text: _report(text, 1)):
            with redirect_stdout(sys.stderr):  # deepspeed, where it is installed, logs there on its import
                from numsft import config  # noqa: F401
            path, overrides, flags = split_arguments(sys.argv[1:] if argv is None else argv)
            with redirect_stdout(sys.stderr):
                recipe = load_recipe(path, overrides)
            run(recipe, flags, signals)
    except UserError as error:
        return _report(error, 2)
    except (RunError, Stopped) as error:
        return _report(error, 1)
    except Exception as error:
        message = _fault(error, signals)
        if message is None:
            raise
        return _report(message, 1)
    return 0


def run(recipe: Recipe, flags: RunFlags, signals: StopSignals | None = None) -> None:
    """Train what the recipe says, or only describe it (`--dry_run`).

    Args:
        recipe: The recipe.
        flags: What the command line says beside it.
        signals: Where SIGTERM and Ctrl-C are received.

    Raises:
        UserError: Before anything is written, for what the user can mend.
        RunError: For a fault during training; the last good checkpoint is kept.
        Stopped: After a signal.
    """
    from numsft.objective import Objective

    with _as_user_error():
        _check(recipe)
        Objective.from_config(recipe.training)
    if flags.accelerate_config and not flags.dry_run:
        raise UserError(
            "--accelerate_config is for the estimate of --dry_run: add --dry_run, or give it to "
            "accelerate launch."
        )
    if flags.dry_run:
        dry_run(recipe, flags)
        return
    output_dir = Path(str(recipe.training.output_dir))
    checkpoint = checkpoint_to_resume(recipe)
    was_there = output_dir.exists()
    try:
        with _as_user_error(), _storing_data():
            trainer, datasets = build(recipe)
            report = preflight_lines(trainer, datasets)
    except (UserError, RunError, Stopped):
        if not was_there and output_dir.is_dir() and not any(output_dir.iterdir()):
            output_dir.rmdir()  # made by the trainer on its way
        raise
    _say(trainer, "\n".join(report))
    train(recipe, trainer, datasets, checkpoint, signals or StopSignals())


def build(recipe: Recipe, output_dir: str | None = None) -> tuple[NumSFTTrainer, Datasets]:
    """Load tokenizer, data and model and make the trainer.

    Args:
        recipe: The recipe.
        output_dir: Instead of the recipe's own, for a dry run.
    """
    from trl import get_peft_config  # type: ignore[attr-defined]

    from numsft.data import load_datasets
    from numsft.models import load_model, load_tokenizer
    from numsft.numerals import NumberVocab
    from numsft.quantization import quantization_config
    from numsft.trainer import NumSFTTrainer

    training, arguments, data = recipe.training, recipe.model, recipe.data
    quantization = quantization_config(arguments, training)
    name = str(arguments.model_name_or_path)
    source = dict(gguf_file=data.gguf_file, revision=arguments.model_revision)
    tokenizer = load_tokenizer(name, trust_remote_code=training.trust_remote_code, **source)
    if training.number_loss != "none":
        NumberVocab.from_tokenizer(tokenizer)  # a sentence now rather than after minutes of loading
    datasets = load_datasets(data, tokenizer, seed=training.seed)
    model = load_model(
        name,
        dtype=arguments.dtype or "auto",
        attn_implementation=arguments.attn_implementation,
        quantization_config=quantization,
        trust_remote_code=training.trust_remote_code,
        **source,
    )
    if output_dir is not None:
        training.output_dir = output_dir
    trainer = NumSFTTrainer(
        model=model,
        args=training,
        train_dataset=datasets.train,
        eval_dataset=datasets.evaluation,
        processing_class=tokenizer,
        peft_config=get_peft_config(arguments),
    )
    if not any(parameter.requires_grad for parameter in trainer.model.parameters()):
        raise UserError(
            "No parameter would be trained: set use_peft, or load a model whose weights are not frozen."
        )
    trainer.card.base_model = data.base_model_id or name
    trainer.card.dataset = data.dataset
    trainer.card.recipe = resolved_yaml(recipe)
    if data.gguf_file:
        kind = re.search(r"Q\d\w*|F16|BF16|F32", data.gguf_file)
        trainer.card.base_note = (
            f"It was trained on a dequantised {kind[0] if kind else 'GGUF'} copy of the base "
            f"(`{data.gguf_file}`), not on the original weights."
        )
    return trainer, datasets


def preflight_lines(trainer: NumSFTTrainer, datasets: Datasets) -> list[str]:
    """Return what the prepared data holds, and raise `UserError` where nothing of it would be trained."""
    from numsft.preflight import preflight

    args = trainer.args
    splits = [("train", trainer.train_dataset, datasets.train, datasets.evaluation)]
    if datasets.evaluation is not None:
        splits.append(("eval", trainer.eval_dataset, datasets.evaluation, datasets.train))
    lines = list(datasets.notes)
    for name, prepared, raw, other in splits:
        packing = args.packing if name == "train" or args.eval_packing is None else args.eval_packing
        report = preflight(
            prepared,
            raw,
            trainer.processing_class,
            max_length=args.max_length,
            packing=args.packing_strategy if packing else None,
            truncation_mode=args.truncation_mode,
            chat_template=trainer.chat_template,
            number_tokens=trainer.vocab.token_ids.tolist(),
            other=other,
            name=name,
        )
        lines += report.lines()
    return lines


def train(
    recipe: Recipe, trainer: NumSFTTrainer, datasets: Datasets, checkpoint: str | None, signals: StopSignals
) -> None:
    """Train, save, score the held-out items before and after, and write the card."""
    from numsft.faults import writing
    from numsft.stop_callback import StopCallback

    state = trainer.accelerator.state
    if trainer.is_world_process_zero():
        if recipe.training.overwrite_output_dir:
            from numsft.checkpoints import clear

            clear(str(recipe.training.output_dir))
        write_resolved(recipe, str(recipe.training.output_dir))
    state.wait_for_everyone()

    first_number = (recipe.data.eval_dataset or recipe.data.dataset) == "nupa"
    before = _score_held_out(trainer, datasets, first_number)
    trainer.add_callback(StopCallback(signals))
    output_dir = str(recipe.training.output_dir)
    with writing(f"The trained model in {output_dir}", output_dir):
        with signals.deferred(f"training was over, and the model is saved in {output_dir}"):
            result = trainer.train(resume_from_checkpoint=checkpoint)
            after = None if signals.received else _score_held_out(trainer, datasets, first_number)
            lines = [f"train_runtime: {result.metrics['train_runtime']:.1f} s"]
            if before is not None and after is not None:
                from numsft.before_after import table, write_items

                trainer.card.results = table(before, after)
                lines += ["", trainer.card.results]
                if trainer.is_world_process_zero():
                    items = datasets.held_out
                    write_items(Path(output_dir) / "held_out.jsonl", items, before, after, first=first_number)
            trainer.save_model(_internal_call=True)  # without its push: that comes when everything is saved
            trainer.save_state()
        if recipe.training.merge:
            lines += _merge(trainer)
    _say(trainer, "\n".join([*lines, "", f"saved in {recipe.training.output_dir}"]))
    if recipe.training.push_to_hub:
        address = trainer.push_output()
        _say(trainer, f"pushed to {address}" if address else "not pushed")


def dry_run(recipe: Recipe, flags: RunFlags) -> None:
    """Print the resolved recipe and a report as comment lines on stdout; train and write nothing."""
    from numsft.dry_run import memory_lines, out_of_reach, report_lines

    with redirect_stdout(sys.stderr):  # stdout is one YAML document, whatever the libraries say
        if flags.accelerate_config or out_of_reach(recipe):
            lines = memory_lines(recipe, flags)
        else:
            with tempfile.TemporaryDirectory() as scratch, _as_user_error():
                trainer, datasets = build(recipe, output_dir=scratch)
                lines = report_lines(trainer, recipe, preflight_lines(trainer, datasets))
    print(resolved_yaml(recipe), end="")
    print("\n".join(f"# {line}" for line in lines))


def _check(recipe: Recipe) -> None:
    """Refuse what can be seen to be wrong before a tokenizer is loaded."""
    if not recipe.model.model_name_or_path:
        raise UserError(
            f"{recipe.path} names no model: set model_name_or_path to a Hub id, a folder or package:NAME."
        )
    if not recipe.data.dataset:
        raise UserError(
            f"{recipe.path} names no data: set dataset to a Hub id, a .json, .jsonl or .parquet "
            "file, or nupa."
        )
    targets = recipe.model.lora_target_modules
    if (
        recipe.model.use_peft
        and targets
        and "lm_head" in ([targets] if isinstance(targets, str) else targets)
    ):
        raise UserError(
            "lora_target_modules holds lm_head, whose adapter the loss would never train: take it "
            "out and set "
            "`lora_modules_to_save: [lm_head]` to train the head whole."
        )
    if recipe.training.overwrite_output_dir and recipe.training.resume_from_checkpoint:
        raise UserError(
            "Both --overwrite_output_dir and --resume_from_checkpoint are given: keep the one that "
            "says what to do "
            "with the checkpoints in the output folder."
        )


def _merge(trainer: NumSFTTrainer) -> list[str]:
    """Save the model with the adapter merged into it in `merged/`, beside the adapter; return what to say."""
    from numsft.hub.merge import merge_adapter

    folder = Path(str(trainer.args.output_dir))
    if not (folder / "adapter_config.json").is_file():
        logger.warning("merge is left out: the whole model was trained, there is no adapter to merge.")
    elif trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        logger.warning(
            "merge is left out, since the model is sharded; in one process: "
            f"python -m numsft.hub merge {folder} --output_dir {folder / 'merged'}"
        )
    elif trainer.is_world_process_zero():
        report = merge_adapter(folder, folder / "merged", replace=True)
        return ["", f"merged into {report.folder}: logits within {report.difference:.1e} of the adapter's"]
    return []


def _score_held_out(trainer: NumSFTTrainer, datasets: Datasets, first_number: bool) -> Any:
    """Generate and score the held-out items on the main process, None where there are none."""
    from numsft.before_after import generate, longest_answer, score

    if not datasets.held_out:
        return None
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        logger.warning("before_after is left out: generating from a sharded model is not supported here.")
        return None
    result = None
    if trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.to(trainer.accelerator.device)
        tokenizer = trainer.processing_class
        texts = generate(
            model,
            tokenizer,
            datasets.held_out,
            max_new_tokens=longest_answer(tokenizer, datasets.held_out, first=first_number),
            add_special_tokens=isinstance(datasets.train[0]["prompt"], str),
        )
        result = score(texts, [item.gold for item in datasets.held_out], first=first_number)
    trainer.accelerator.wait_for_everyone()
    return result


@contextmanager
def _as_user_error() -> Iterator[None]:
    """Turn what libraries say of settings, files and missing packages into one message, no traceback."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, ImportError, FileNotFoundError, NotADirectoryError) as error:
        logger.debug("where it was raised", exc_info=error)
        raise UserError(str(error) or type(error).__name__) from error


@contextmanager
def _storing_data() -> Iterator[None]:
    """Say where the prepared rows go when there is no room for them."""
    try:
        yield
    except Exception as error:
        from datasets import config

        from numsft.faults import no_room

        reason = no_room(error, config.HF_DATASETS_CACHE)
        if reason is None:
            raise
        raise RunError(
            f"The prepared data could not be written to {config.HF_DATASETS_CACHE}, {reason}: make room, or "
            "set HF_DATASETS_CACHE to a folder that has some."
        ) from error


def _fault(error: Exception, signals: StopSignals) -> str | None:
    """Return the message of a fault that a library reported in its own way, None for a bug."""
    from numsft.faults import no_room

    if signals.received:  # which also ends the workers that prepare the data
        return (
            f"Stopped by {signals.received}, nothing more was saved: give --resume_from_checkpoint true to "
            "go on from the last checkpoint, if there is one."
        )
    if lost_a_rank(error):
        return (
            "Another process of this run has ended: see what it or the launcher says; resume with "
            "--resume_from_checkpoint true."
        )
    reason = no_room(error)
    return f"A file could not be written, {reason}: make room and resume." if reason else None


def _say(trainer: NumSFTTrainer, text: str) -> None:
    if trainer.is_world_process_zero():
        print(text, flush=True)


def _report(error: BaseException | str, status: int) -> int:
    """Print a message of at most 4 lines and 900 characters on stderr, once for all ranks."""
    if may_report():
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = "\n".join(lines[:4])
        if len(text) > _LONGEST_MESSAGE:
            text = text[: _LONGEST_MESSAGE - 1] + "…"
        print(f"error: {text}", file=sys.stderr, flush=True)
    return status


def _end(status: int) -> None:
    """End the process; after a fault on one of several ranks, without waiting for the others."""
    if status and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    _end(main())
