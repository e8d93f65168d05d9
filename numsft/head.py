"""The chunked LM head: loss, metric sums and gradients of a micro-batch without its `[tokens, vocab]` logits.

The step's denominators are known before the forward pass, so the gradient is formed where the loss is: for
each chunk of tokens the logits are computed once, read for every statistic, overwritten with their own
gradient and multiplied into the gradients of the hidden states and of the head. Three matrix products with a
trained head, two with a frozen one; the backward pass only hands the results over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from numsft.head_pass import IDENTITY, SUM_NAMES, HeadPass, LogitTransform, default_chunk_size
from numsft.microbatch import HeadBatch
from numsft.objective import Objective

__all__ = ["SUM_NAMES", "LogitTransform", "chunked_head", "default_chunk_size"]


def chunked_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    batch: HeadBatch,
    objective: Objective,
    transform: LogitTransform = IDENTITY,
    chunk_size: int | None = None,
    cost_embedding: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute loss and metric sums of a micro-batch from its hidden states.

    Args:
        hidden: `[batch * seq, H]`, the backbone's last hidden states, all positions.
        weight: `[V, H]`, the head's weight.
        bias: `[V]` or None.
        batch: Positions, targets and scales.
        objective: The losses.
        transform: The model's logit scaling and soft-capping.
        chunk_size: Tokens a chunk; None chooses.
        cost_embedding: `[V, H]`, what EMO measures distances in; None takes the head's own weight.

    Returns:
        The scalar loss, float32 (float64 for float64 input), attached to the graph: `token_scale` times the
        summed token loss plus `number_scale` times the weighted sum of the number loss. And the detached
        sums `[len(SUM_NAMES)]`, float64, in the order of `SUM_NAMES`.

    Raises:
        ValueError: If the weight is empty (ZeRO-3 outside its gather).
    """
    if weight.numel() == 0:
        raise ValueError(
            "The LM head's weight is empty here: DeepSpeed ZeRO-3 has it partitioned, and it must be "
            "gathered "
            "inside the model's forward before the head is called."
        )
    device_type = hidden.device.type
    compute = hidden.dtype
    if torch.is_autocast_enabled(device_type):
        compute = torch.get_autocast_dtype(device_type)
    chunk = chunk_size or default_chunk_size(hidden.device, weight.shape[0])
    loss, sums = _ChunkedHead.apply(  # type: ignore[no-untyped-call]
        hidden,
        weight,
        bias,
        batch,
        objective,
        transform,
        chunk,
        compute,
        torch.is_grad_enabled(),
        cost_embedding,
    )
    return loss, sums


class _ChunkedHead(torch.autograd.Function):
    """Forward computes everything; backward hands over what it stored."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        batch: HeadBatch,
        objective: Objective,
        transform: LogitTransform,
        chunk: int,
        compute: torch.dtype,
        with_grad: bool,
        cost_embedding: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        needs = [with_grad and wanted for wanted in ctx.needs_input_grad[:3]]
        with torch.autocast(hidden.device.type, enabled=False):
            run = HeadPass(hidden, weight, bias, batch, objective, transform, compute, needs, cost_embedding)
            for start in range(0, len(batch.rows), chunk):
                run.chunk(start, min(start + chunk, len(batch.rows)))
            run.number_level()
            loss, sums, ctx.grads = run.results()
            ctx.late_scale = run.late_scale
        ctx.mark_non_differentiable(sums)
        return loss, sums

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError(
                "The head's gradient was handed over already: a second backward pass through the same loss "
                "is not supported; run the forward pass again."
            )
        factor = grad_loss if ctx.late_scale is None else grad_loss * ctx.late_scale
        # On a CPU reading the factor costs nothing and skips a pass over the head's gradient.
        if factor.device.type != "cpu" or factor.item() != 1.0:
            for grad in grads:
                if grad is not None:
                    grad.mul_(factor)
        # No other reference to the head's gradient may live on: autograd then makes it `.grad` without a
        # copy.
        return (*grads, None, None, None, None, None, None, None)
