"""From a recipe to its memory report."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from numsft.memory.estimate import estimate
from numsft.memory.fit import MARGIN, check_fits, describe, gib, usable_bytes
from numsft.memory.moments import PARTS, MemoryEstimate
from numsft.memory.plan import Plan, plan_from_accelerate
from numsft.memory.setup import Setup
from numsft.memory.shape import Lora, ModelShape, lora_targets

if TYPE_CHECKING:
    from numsft.recipes import Recipe

_CONTENTS = {
    "parameters": "trained and frozen",
    "gradients": "of the trained parameters",
    "optimiser": "its state, and float32 copies",
    "activations": "for the backward pass, and its temporaries",
    "head": "a chunk of logits, its scratch, the head's gradients",
    "other": "bf16 copies, gathered layers, buffers of the communication",
}


def memory_report(
    recipe: Recipe,
    model_or_config: Any = None,
    longest_row: int | None = None,
    accelerate_config: str | Path | None = None,
    gpus: int | None = None,
    gpu_memory: float = 80.0,
) -> list[str]:
    """Estimate a run's memory a GPU, or of the process where it runs on a CPU.

    Args:
        recipe: The run.
        model_or_config: The model or its configuration; None uses the recipe's `shape` block.
        longest_row: Tokens of the longest row; None takes `max_length`.
        accelerate_config: The launch. None is one process on this machine.
        gpus: Number of GPUs instead of the file's.
        gpu_memory: Memory of one GPU, in GiB.

    Returns:
        Lines of text; one line that says why, where there is nothing to estimate from.

    Raises:
        UserError: For a launch that cannot be read and, with `accelerate_config`, for one that does not fit:
        with the
            nearest setting that does.
    """
    plan = plan_from_accelerate(accelerate_config, gpus) if accelerate_config is not None else None
    shape, reason = _shape_of(recipe, model_or_config)
    if shape is None:
        return [f"memory: not estimated, because {reason}"]
    setup = setup_of(recipe, plan, longest_row, gpus, _config_of(model_or_config))
    if setup is None:
        return ["memory: not estimated, because neither max_length nor the longest row is known"]
    needed = estimate(shape, setup)
    if plan is not None and setup.device == "cuda":
        check_fits(needed, gpu_memory)
    return report_lines(needed, gpu_memory)


def trainable_line(recipe: Recipe, model_or_config: Any = None) -> list[str]:
    """Return how many parameters the sizes alone say would be trained; nothing where they are not known."""
    config = _config_of(model_or_config)
    shape, _ = _shape_of(recipe, config)
    if shape is None:
        return []
    trained = total = shape.parameters
    if recipe.model.use_peft:
        lora = _lora_of(recipe.model, config)
        trained = lora.parameters(shape) + lora.saved_parameters(shape)
        total += trained
    return [f"trainable parameters: {trained:,} of {total:,} ({trained / total:.2%}), by the model's sizes"]


def report_lines(needed: MemoryEstimate, gpu_memory: float = 80.0) -> list[str]:
    """Return the estimate as a small table, in GiB: each part's largest, and what is alive at the peak."""
    peak, on_gpu = needed.peak, needed.setup.device == "cuda"
    lines = [
        f"memory {'a GPU' if on_gpu else 'of the process'} in GiB, estimated: "
        + describe(needed.setup).rstrip(","),
        f"{'':14}{'largest':>8}{'at peak':>9}",
    ]
    for part in PARTS:
        row = f"{part:14}{gib(getattr(needed, part)):>8}{gib(getattr(peak, part)):>9}"
        lines.append(f"{row}  {_CONTENTS[part]}")
    lines.append(f"{'total':14}{'':8}{gib(needed.total):>9}  at {peak.name}")
    if on_gpu:
        lines[-1] += f"; {gib(usable_bytes(gpu_memory))} of {gpu_memory:g} usable, {MARGIN:.0%} is margin"
    else:
        # glibc keeps freed blocks below 32 MiB: measured, up to twice the tensors of a small model
        lines.append(
            "beside it: Python, libraries, and what malloc keeps (MALLOC_MMAP_THRESHOLD_=65536 frees it)"
        )
    return lines


def setup_of(
    recipe: Recipe,
    plan: Plan | None,
    longest_row: int | None = None,
    gpus: int | None = None,
    config: Any = None,
) -> Setup | None:
    """Return what a recipe and a launch set; None where no row's length is known.

    Args:
        recipe: The run.
        plan: The launch; None is this machine, as the recipe's precision was settled for it.
        longest_row: Tokens of the longest row.
        gpus: Number of GPUs where there is no plan.
        config: The model's configuration, for its dtype and type.
    """
    training, model = recipe.training, recipe.model
    packs = bool(training.packing)
    flat = bool(training.padding_free) or (packs and training.packing_strategy != "wrapped")
    lengths = [training.max_length] if packs else [training.max_length, longest_row]
    if flat and not packs and longest_row is not None:
        lengths = [longest_row]  # without packing TRL does not cut padding-free rows
    known = [length for length in lengths if length]
    if not known:
        return None
    if plan is None:
        on_cpu, many = bool(training.use_cpu), gpus or 1
        mixed = bool(training.bf16 or training.fp16)
        plan = Plan("ddp" if many > 1 else "none", many, cpu=on_cpu)
    elif plan.cpu:
        mixed = bool(recipe.values.get("bf16")) or plan.mixed_precision != "no"
    else:
        # On a GPU an unset bf16 is TRL's default, true; what was settled for this machine may be another.
        mixed = recipe.values.get("bf16") is not False or plan.mixed_precision != "no"
    gradients = getattr(training.accelerator_config, "gradient_accumulation_kwargs", None) or {}
    return Setup(
        batch=training.per_device_train_batch_size,
        length=min(known),
        accumulation=training.gradient_accumulation_steps,
        checkpointing=bool(training.activation_checkpointing) or plan.checkpointing,
        lora=_lora_of(model, config) if model.use_peft else None,
        weight_bytes=_weight_bytes(model.dtype, config),
        mixed=mixed,
        quantised=4 if model.load_in_4bit else 8 if model.load_in_8bit else None,
        nested=bool(model.use_bnb_nested_quant),
        optimiser=str(getattr(training.optim, "value", training.optim)),
        attention=_attention(model.attn_implementation),
        packed=flat,
        kind=plan.kind,
        gpus=plan.processes,
        sync_each_batch=bool(gradients.get("sync_each_batch")),
        offload=plan.offload,
        head_chunk=training.head_chunk_size,
        device="cpu" if plan.cpu else "cuda",
    )


def _shape_of(recipe: Recipe, model_or_config: Any) -> tuple[ModelShape | None, str]:
    if model_or_config is not None:
        config = _config_of(model_or_config)
        shape = ModelShape.from_config(config)
        if shape is None or not _has_parameters(config, shape):
            return None, f"it covers dense decoders with a gated MLP, and {config.model_type} is not one"
        return shape, ""
    if not recipe.shape:
        return None, "the model's configuration is not at hand and the recipe has no `shape` block"
    shape = ModelShape.from_recipe(recipe.shape)
    return (
        shape,
        "the `shape` block lacks a size: it needs layers, hidden, intermediate, heads and vocabulary",
    )


def _has_parameters(config: Any, shape: ModelShape) -> bool:
    """Whether one layer and the ends have about as many weights as the shape; unknown code is believed."""
    from transformers import AutoModelForCausalLM

    one = copy.deepcopy(config.get_text_config())
    one.num_hidden_layers = 1  # a whole 7B model takes seconds to build, even without its memory
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(one)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, ImportError, RuntimeError):
        return True
    expected = dataclasses.replace(shape, layers=1).parameters
    return bool(abs(model.num_parameters() - expected) <= 0.02 * expected)


def _config_of(model_or_config: Any) -> Any:
    return getattr(model_or_config, "config", model_or_config)


def _lora_of(model: Any, config: Any) -> Lora:
    targets = lora_targets(model.lora_target_modules, getattr(config, "model_type", None))
    return Lora(model.lora_r, targets, model.lora_dropout, tuple(model.lora_modules_to_save or ()))


def _weight_bytes(dtype: str | None, config: Any) -> int:
    if dtype in (None, "auto"):
        dtype = str(getattr(config, "dtype", None) or "bfloat16")  # what nearly all models are published in
    return 4 if "float32" in str(dtype) else 2


def _attention(name: str | None) -> str:
    if name == "auto":
        return "flash" if importlib.util.find_spec("flash_attn") else "sdpa"
    if name is None or name == "sdpa":
        return "sdpa"
    return "eager" if name == "eager" else "flash"
