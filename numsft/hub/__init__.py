"""The way to the Hub: model cards, pushing, and merging an adapter into its base."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numsft.hub.card import CardFacts, model_card, objective_lines, write_model_card
    from numsft.hub.merge import merge_adapter
    from numsft.hub.push import Destination, push_folder

# Imported on first use: a push needs neither torch nor PEFT.
_HOME = {
    "CardFacts": "numsft.hub.card",
    "Destination": "numsft.hub.push",
    "merge_adapter": "numsft.hub.merge",
    "model_card": "numsft.hub.card",
    "objective_lines": "numsft.hub.card",
    "push_folder": "numsft.hub.push",
    "write_model_card": "numsft.hub.card",
}

__all__ = [
    "CardFacts",
    "Destination",
    "merge_adapter",
    "model_card",
    "objective_lines",
    "push_folder",
    "write_model_card",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'numsft.hub' has no attribute {name!r}")
