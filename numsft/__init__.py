"""Supervised fine-tuning with digit-aware losses: a TRL trainer, recipes and an evaluation of numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numsft.config import NumSFTConfig
    from numsft.numerals import NumberVocab, number_targets
    from numsft.objective import number_loss
    from numsft.trainer import NumSFTTrainer

__version__ = "0.1.0"

# Imported on first use: `python -m numsft.run --help` and a mistyped recipe should not wait for torch and
# TRL.
_HOME = {
    "NumSFTConfig": "numsft.config",
    "NumSFTTrainer": "numsft.trainer",
    "NumberVocab": "numsft.numerals",
    "number_targets": "numsft.numerals",
    "number_loss": "numsft.objective",
}

__all__ = ["NumSFTConfig", "NumSFTTrainer", "NumberVocab", "number_loss", "number_targets"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'numsft' has no attribute {name!r}")
