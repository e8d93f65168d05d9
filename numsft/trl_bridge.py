"""The one file that knows the insides of TRL, PEFT and transformers: the forward that runs the chunked head.

`tests/test_trl_bridge.py` is the contract: it fails when an upgrade moves what is read here.
"""

from __future__ import annotations

import functools
import json
import types
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from trl.trainer.utils import maybe_gather_lm_head_ctx

from numsft.errors import UserError
from numsft.head import LogitTransform, chunked_head
from numsft.microbatch import HeadBatch
from numsft.objective import Objective


@dataclass(eq=False)
class HeadCall:
    """What a forward pass needs to run the chunked head instead of the model's own, and what it leaves.

    The sums come back in here and not as an output: FSDP2 casts every floating output to bfloat16, which
    cannot count beyond 256. In evaluation mode `predicted` is the likeliest class at each number position,
    `[M]` int64.
    """

    batch: HeadBatch
    objective: Objective
    chunk_size: int | None = None
    cost_embedding: Tensor | None = None
    sums: Tensor | None = None
    predicted: Tensor | None = None


def base_model_of(model: PreTrainedModel | PeftModel) -> Any:
    """Return the causal language model inside a PEFT model, or `model` itself."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


@contextmanager
def without_peft_warning() -> Iterator[None]:
    """Silence the one warning that PEFT 0.21 draws from transformers 5.24 on every model it wraps."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
        yield


@contextmanager
def named_base(model: Any, name: str | None, folder: str) -> Iterator[None]:
    """Have an adapter saved in `folder` name `name` as its base.

    PEFT looks the base's name up on the Hub while it saves, to see whether the vocabulary was resized. It was
    not, so the name is kept from it and written afterwards: a run without a network stays without one.
    """
    adapters = list(model.peft_config.values()) if name and isinstance(model, PeftModel) else []
    for adapter in adapters:
        adapter.base_model_name_or_path = None
    yield
    for adapter in adapters:
        adapter.base_model_name_or_path = name
    for path in Path(folder).glob("**/adapter_config.json") if adapters else ():
        if path.parent == Path(folder) or path.parent.name in model.peft_config:
            config = json.loads(path.read_text(encoding="utf-8"))
            config["base_model_name_or_path"] = name
            path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def evaluation_collator(collator: Any, args: Any) -> Any:
    """Return the collator that keeps packed evaluation documents apart.

    TRL has one collator, chosen by `packing`: with `eval_packing` alone it would pad packed rows and drop
    where their documents start, so that they attend to each other.
    """
    apart = args.packing_strategy in ("bfd", "bfd_split") and hasattr(collator, "padding_free")
    if args.eval_packing and apart and not collator.padding_free:
        return replace(collator, padding_free=True)
    return collator


def check_head(model: PreTrainedModel | PeftModel, largest_number_id: int | None) -> None:
    """Raise a one-sentence `ValueError` for a head that the chunked head cannot train correctly.

    Args:
        model: The model, adapted or not.
        largest_number_id: The largest number token's id; None where the tokenizer has no number tokens.
    """
    head = base_model_of(model).get_output_embeddings()
    if head is None:
        raise UserError(
            f"{type(base_model_of(model)).__name__} has no output embeddings, so it has no LM head."
        )
    if any(isinstance(module, BaseTunerLayer) for module in head.modules()):
        # trl#6159: an adapter there is silently not trained by a head that reads the weight.
        raise UserError(
            "A LoRA adapter on lm_head is not supported, because the loss reads the head's weight "
            "directly and the "
            "adapter would never be trained: take lm_head out of lora_target_modules and train it whole with "
            "`lora_modules_to_save: [lm_head]` (PEFT's modules_to_save)."
        )
    if not head.weight.is_floating_point():
        raise UserError(
            f"The LM head is quantised to {head.weight.dtype}: load the model with the head left in "
            "floating point "
            "(llm_int8_skip_modules: [lm_head])."
        )
    width = getattr(head, "out_features", head.weight.shape[0])
    if largest_number_id is not None and largest_number_id >= width:
        raise UserError(
            f"The LM head has {width} rows but the tokenizer's number tokens reach id "
            f"{largest_number_id}: resize the "
            "embeddings or use the model's own tokenizer."
        )


def frozen_cost_embedding(model: PreTrainedModel | PeftModel) -> Tensor | None:
    """Return a copy of the head's weight as it is now; None where the head is frozen and can serve itself.

    Raises:
        UserError: If the weight is not there to copy (ZeRO-3, or loaded on another rank only).
    """
    weight: Tensor = base_model_of(model).get_output_embeddings().weight
    if not weight.requires_grad:
        return None
    if weight.is_meta or weight.numel() == 0:
        raise UserError(
            "token_loss emo needs a copy of the LM head as it was before training, but the weight is "
            "not whole on "
            "this rank: freeze the head (LoRA), or load the model without ZeRO-3 or RAM-efficient loading."
        )
    return weight.detach().clone()


def logit_transform(config: Any) -> LogitTransform:
    """Return how a model with this configuration turns raw logits into logits.

    Cohere multiplies by `logit_scale`, Falcon-H1 by `lm_head_multiplier`, Granite and MiniCPM3 divide by
    `logits_scaling` (HyperCLOVA X multiplies by it), Gemma 2 caps at `final_logit_softcapping`.
    """
    config = config.get_text_config()
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling"):
        value = getattr(config, name, None)
        if value is not None:
            divides = name == "logits_scaling" and config.model_type != "hyperclovax"
            scale = 1 / value if divides else float(value)
            break
    else:
        scale = 1.0
    return LogitTransform(scale, getattr(config, "final_logit_softcapping", None))


def attach_head(model: Any) -> None:
    """Let `model(..., head_call=HeadCall(...))` run the chunked head; other calls stay as they are.

    The head is run inside the model's forward, where FSDP and ZeRO-3 have the parameters at hand, and reads
    the backbone and the head anew at each call, since both frameworks replace them after this.
    """
    plain_forward = model.forward
    transform = logit_transform(model.config)

    # The signature stays the model's own: `generate` and the Trainer read it.
    @functools.wraps(type(model).forward)
    def forward(self: Any, *args: Any, head_call: HeadCall | None = None, **kwargs: Any) -> Any:
        if head_call is None:
            return plain_forward(*args, **kwargs)
        outputs = self.base_model(*args, **kwargs)
        head = self.get_output_embeddings()
        # Prompt tuning puts virtual tokens before the row; no label describes them.
        hidden = outputs.last_hidden_state[:, -head_call.batch.length :]
        with _whole_parameters(head) as (weight, bias):
            if not self.training:
                head_call.predicted = predicted_classes(hidden, weight, bias, head_call.batch, transform)
            loss, head_call.sums = chunked_head(
                hidden.flatten(0, 1).to(weight.device),
                weight,
                bias,
                head_call.batch,
                head_call.objective,
                transform,
                head_call.chunk_size,
                head_call.cost_embedding,
            )
        result = {"loss": loss}
        if kwargs.get("output_router_logits"):
            result["aux_loss"] = _router_loss(self, outputs.router_logits, kwargs.get("attention_mask"))
        return result

    model.forward = types.MethodType(forward, model)


@torch.no_grad()
def predicted_classes(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, batch: HeadBatch, transform: LogitTransform
) -> Tensor:
    """Return `[M]`: the number token with the largest logit at each number position.

    Args:
        hidden: `[batch, seq, H]` hidden states.
        weight: `[V, H]` of the head.
        bias: `[V]` or None.
        batch: The micro-batch; its `token_ids` are the classes.
        transform: A negative scale turns the order around; a soft cap keeps it.
    """
    at_numbers = hidden.flatten(0, 1)[batch.rows[batch.number_rows]].to(weight.device)
    logits = at_numbers.float() @ weight[batch.token_ids].float().T
    if bias is not None:
        logits = logits + bias[batch.token_ids].float()
    return (logits * transform.scale).argmax(-1)


class _whole_parameters(AbstractContextManager[tuple[Tensor, Tensor | None]]):
    """The head's whole weight and bias for one read, however they are sharded."""

    def __init__(self, head: Any) -> None:
        self._head = head
        self._unsharded = False
        self._gather: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> tuple[Tensor, Tensor | None]:
        head = self._head
        if isinstance(head.weight, DTensor):
            # The head is an FSDP2 unit of its own. `full_tensor()` would give its gradient to a copy.
            head.unshard()
            self._unsharded = True
        bias: Any = getattr(head, "bias", None)
        self._gather = maybe_gather_lm_head_ctx(head.weight, bias)
        self._gather.__enter__()
        return head.weight, bias

    def __exit__(self, *exc: Any) -> None:
        self._gather.__exit__(*exc)
        if self._unsharded:
            self._head.reshard()


def _router_loss(model: Any, router_logits: Any, attention_mask: Tensor | None) -> Any:
    """Return the load-balancing loss of a mixture of experts, as the model's own forward computes it."""
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    config = model.config.get_text_config()
    return load_balancing_loss_func(
        router_logits, config.num_experts, config.num_experts_per_tok, attention_mask
    )
