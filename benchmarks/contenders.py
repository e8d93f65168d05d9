"""What numsft is measured against beside TRL itself, and what contenders are called in tables and plots."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor

from numsft import NumberVocab, number_loss
from numsft.losses import NUMBER_LOSSES

LABELS = {
    "numsft_ce_del": "numsft, CE + DEL",
    "numsft_ce": "numsft, CE",
    "numsft_del": "numsft, CE + DEL",
    "trl_ce": "TRL, CE",
    "full_ce_del": "full logits, CE + DEL",
    "trl_compute_loss_func": "TRL, CE + DEL through `compute_loss_func`",
    "hf_full_logits_del": "Trainer on full logits, CE + DEL as published",
    "hf_full_logits_ntloss": "Trainer on full logits, CE + `ntloss`",
    "liger_ce": "Liger's fused CE",
    "products": "bare matrix products",
}
"""Contender -> its name in tables and pictures."""


def label(contender: str) -> str:
    """Return a contender's name for a reader; `numsft_LOSS` is numsft with that loss."""
    contender, bracket, adapter = contender.partition(" (")
    name, frozen, _ = contender.partition("_frozen")
    loss = name.removeprefix("numsft_")
    ours = f"numsft, CE + {loss}" if loss in NUMBER_LOSSES else f"numsft, {loss}"
    text = LABELS.get(name, name if loss == name else ours)
    return text + (", head frozen" if frozen else "") + bracket + adapter


class FullLogits:
    """Mixed into a trainer: the model's cross-entropy on full logits, and DEL scaled as it was published."""

    processing_class: Any

    @cached_property
    def vocab(self) -> NumberVocab:
        """The tokenizer's number tokens."""
        return NumberVocab.from_tokenizer(self.processing_class)

    def compute_loss(self, model: Any, inputs: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return cross-entropy plus alpha times DEL."""
        outputs = model(**inputs, use_cache=False)
        digits = number_loss(
            outputs.logits, inputs["labels"], self.vocab, "del", number_reduction="reference"
        )
        return outputs.loss + NUMBER_LOSSES["del"].default_weight * digits


class Liger:
    """Mixed into a trainer: Liger's fused linear cross-entropy and no number loss, CUDA only."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return the mean cross-entropy."""
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        labels = inputs.pop("labels")[:, 1:].flatten()
        hidden = base.model(**inputs, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
        return LigerFusedLinearCrossEntropyLoss()(base.lm_head.weight, hidden, labels)
