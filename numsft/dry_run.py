"""The report of `--dry_run`: what would be trained, on what, with which objective and how much memory."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from peft.tuners.tuners_utils import BaseTunerLayer

from numsft.errors import UserError
from numsft.hub import objective_lines

if TYPE_CHECKING:
    from numsft.numerals import NumberVocab
    from numsft.objective import Objective
    from numsft.recipe_arguments import RunFlags
    from numsft.recipes import Recipe
    from numsft.trainer import NumSFTTrainer


def report_lines(trainer: NumSFTTrainer, recipe: Recipe, preflight: list[str]) -> list[str]:
    """Describe a built trainer; nothing has been trained.

    Args:
        trainer: The trainer.
        recipe: What it was built from.
        preflight: The lines of the data's preflight.
    """
    model, args = trainer.model, trainer.args
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    dtypes = Counter(str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.requires_grad)
    batch = (
        args.per_device_train_batch_size
        * args.gradient_accumulation_steps
        * trainer.accelerator.num_processes
    )
    precision = "bf16 autocast" if args.bf16 else "fp16 autocast" if args.fp16 else "as loaded"
    return [
        f"model: {type(model).__name__} of {recipe.model.model_name_or_path}",
        f"attention: {model.config._attn_implementation}",
        f"trainable parameters: {trainable:,} of {total:,} ({trainable / total:.2%}), "
        f"{', '.join(dtypes)}; {precision}",
        f"adapted modules: {_adapted(model)}",
        f"number vocabulary: {_vocabulary(trainer.vocab)}",
        *(
            line.replace("`", "")
            for line in objective_lines(trainer.objective, len(trainer.vocab.token_ids) or None)
            if line
        ),
        *_effective_weight(trainer.objective, trainer),
        f"batch: {args.per_device_train_batch_size} x {args.gradient_accumulation_steps} "
        "accumulation steps x "
        f"{trainer.accelerator.num_processes} processes = {batch} rows a step",
        *preflight,
        *_memory(trainer, recipe),
    ]


def memory_lines(recipe: Recipe, flags: RunFlags) -> list[str]:
    """Estimate memory a GPU under an accelerate configuration, or here, without loading the model's weights.

    The model's sizes are those of its configuration where that is on this machine, else those of the recipe's
    `shape` block. The last lines name what a plain `--dry_run` checks and this does not.
    """
    from numsft.memory import memory_report, trainable_line

    config = _config(recipe, local_files_only=True)
    name = recipe.model.model_name_or_path
    lines = trainable_line(recipe, config) + memory_report(
        recipe,
        config,
        accelerate_config=flags.accelerate_config,
        gpus=flags.gpus,
        gpu_memory=flags.gpu_memory or 80.0,
    )
    if config is None:
        source = "the recipe's `shape` block is believed" if recipe.shape else "nothing says how large it is"
        lines.append(
            f"not checked: the sizes of {name}, whose configuration is not on this machine; {source}"
        )
    where = "without --accelerate_config" if flags.accelerate_config else f"where {name} can be loaded"
    lines.append(
        f"not checked: tokenizer, number vocabulary, data and adapted modules, as --dry_run does {where}"
    )
    return lines


def out_of_reach(recipe: Recipe) -> bool:
    """Return whether the model is on a Hub that this machine cannot reach, and the recipe gives its `shape`.

    A name that the Hub refuses is not out of reach: it is a mistake, which loading reports.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    if not recipe.shape:
        return False
    try:
        _config(recipe, refuse=OSError)
    except OSError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled):
                return True
            cause = cause.__cause__
    return False


def _config(recipe: Recipe, refuse: type[Exception] | None = None, **options: Any) -> Any:
    """Return the model's configuration; where it cannot be had None, or `refuse` goes to the caller."""
    from transformers import AutoConfig

    from numsft.models import find_model

    try:
        source = find_model(str(recipe.model.model_name_or_path), recipe.data.gguf_file)
        if source.gguf_file:
            options["gguf_file"] = source.gguf_file
        return AutoConfig.from_pretrained(
            source.path,
            revision=recipe.model.model_revision,
            trust_remote_code=recipe.training.trust_remote_code,
            **options,
        )
    except (UserError, OSError, ValueError, ImportError) as error:
        if refuse is not None and isinstance(error, refuse):
            raise
        return None


def _adapted(model: object) -> str:
    """Names of the modules that carry an adapter, with how often each occurs."""
    counts: Counter[str] = Counter()
    for name, module in model.named_modules():  # type: ignore[attr-defined]
        if isinstance(module, BaseTunerLayer):
            counts[re.sub(r".*\.", "", name)] += 1
    return (
        ", ".join(f"{name} x{count}" for name, count in sorted(counts.items())) or "none (full fine-tuning)"
    )


def _vocabulary(vocab: NumberVocab) -> str:
    if not len(vocab.token_ids):
        return "none"
    ids = vocab.token_ids.tolist()
    shown = ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")
    points = ", ".join(map(str, vocab.decimal_point_ids.tolist()))
    return f"{vocab.kind}, {len(ids)} tokens (ids {shown}), decimal point {points}"


def _effective_weight(objective: Objective, trainer: NumSFTTrainer) -> list[str]:
    """Say what the published scaling amounts to, where it is asked for."""
    if objective.reduction != "reference" or objective.number_loss is None:
        return []
    steps, ranks = trainer.args.gradient_accumulation_steps, trainer.accelerator.num_processes
    classes = len(trainer.vocab.token_ids)
    mean = objective.weight * steps * ranks
    return [
        f"weight α in effect: {objective.weight:g} x {steps} accumulation steps x {ranks} processes "
        f"= {mean:g} "
        f"(class-mean units), {mean / classes:g} (class-sum units), as the published script scales it"
    ]


def _memory(trainer: NumSFTTrainer, recipe: Recipe) -> list[str]:
    from numsft.memory import memory_report

    longest = max(
        len(row)
        for row in trainer.train_dataset.select(range(min(2000, len(trainer.train_dataset))))["input_ids"]
    )
    return memory_report(recipe, trainer.model, longest_row=longest)
