"""`load_in_4bit` (QLoRA) and `load_in_8bit`: from a recipe's keys to bitsandbytes' settings."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from numsft.errors import UserError

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig


def quantization_config(arguments: Any, training: Any) -> BitsAndBytesConfig | None:
    """Return what `from_pretrained` takes as `quantization_config`; None where nothing is quantised.

    Matrix products are computed in the run's own precision (bf16 or fp16), without one in `dtype`; TRL's own
    function takes `dtype` alone, so that a recipe with `bf16: true` would compute in float32, and breaks on
    `dtype: auto`.

    Args:
        arguments: TRL's `ModelConfig`.
        training: `NumSFTConfig`, whose `bf16` and `fp16` are settled.

    Raises:
        UserError: Without bitsandbytes, without a GPU, or for full fine-tuning of quantised weights.
    """
    key = "load_in_4bit" if arguments.load_in_4bit else "load_in_8bit"
    if not (arguments.load_in_4bit or arguments.load_in_8bit):
        return None
    if not arguments.use_peft:
        raise UserError(
            f"{key} is set without use_peft, but quantised weights cannot be trained: set use_peft."
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            f"{key} needs the package bitsandbytes, which is not installed: run `pip install bitsandbytes`, "
            f"or remove {key}."
        )
    if not torch.accelerator.is_available():
        raise UserError(f"{key} needs a GPU and there is none here: remove {key}, or run where there is one.")
    from transformers import BitsAndBytesConfig

    if arguments.load_in_8bit:
        return BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_compute_dtype=_compute_dtype(arguments, training),
        bnb_4bit_quant_type=arguments.bnb_4bit_quant_type,
        bnb_4bit_use_double_quant=arguments.use_bnb_nested_quant,
        bnb_4bit_quant_storage=arguments.bnb_4bit_quant_storage,
    )


def _compute_dtype(arguments: Any, training: Any) -> str:
    if training.bf16 or training.fp16:
        return "bfloat16" if training.bf16 else "float16"
    return "float32" if arguments.dtype in (None, "auto") else str(arguments.dtype)
