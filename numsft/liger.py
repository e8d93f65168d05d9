"""What is taken from liger-kernel where it is installed and there is a GPU: two kinds of Triton kernels."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from torch import Tensor


def has_gradient_kernel(device: torch.device) -> bool:
    """Return whether `cross_entropy_gradient_` runs on `device`: a GPU, or Triton's interpreter for tests."""
    runs = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return runs and importlib.util.find_spec("liger_kernel") is not None


def cross_entropy_gradient_(logits: Tensor, labels: Tensor) -> None:
    """Overwrite `logits [m, V]` with softmax(logits) - one_hot(labels), in one pass of Liger's kernel.

    Args:
        logits: Contiguous rows in any floating dtype; the kernel computes in float32.
        labels: `[m]` int64, none of them ignored.
    """
    from liger_kernel.ops.cross_entropy import cross_entropy_forward

    wanted = logits.detach().requires_grad_()  # the kernel writes gradients only where they are asked for
    cross_entropy_forward(
        wanted,
        labels,
        weight=None,
        ignore_index=-100,
        lse_square_scale=0.0,
        label_smoothing=0.0,
        reduction="sum",
        softcap=None,
        return_z_loss=False,
    )


def why_no_layer_kernels() -> str | None:
    """Return what keeps `use_layer_kernels` from doing anything here; None where nothing does."""
    if not torch.cuda.is_available():
        return "there is no GPU here"
    if importlib.util.find_spec("liger_kernel") is None:
        return 'liger-kernel is not installed (`pip install "numsft[gpu]"`)'
    return None


def use_layer_kernels(model: Any) -> bool:
    """Swap in Liger's RMSNorm, RoPE and SwiGLU kernels on this causal model; return whether they were.

    Its cross-entropies stay off: the chunked head is the loss. On a machine without a GPU or without
    liger-kernel nothing is done.
    """
    if why_no_layer_kernels() is not None:
        return False
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)
    return True
