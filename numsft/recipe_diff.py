"""What changed between the recipe of an earlier run and this one's, and whether the run can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from numsft.recipe_types import loss_classes, recipe_keys
from numsft.recipe_yaml import to_line

if TYPE_CHECKING:
    from numsft.recipes import Recipe

OBJECTIVE_KEYS = (
    "token_loss",
    "token_loss_kwargs",
    "number_loss",
    "number_loss_weight",
    "number_loss_kwargs",
    "place_weighting",
    "place_weighting_kwargs",
    "number_reduction",
)
RUN_ONLY_KEYS = ("resume_from_checkpoint", "overwrite_output_dir")
"""What to do with an earlier run, no setting of this one: not written to `resolved.yaml`, not compared."""

SECRETS = ("hub_token", "token", "use_auth_token")
_MODEL_FREE = ("dtype", "attn_implementation", "lora_dropout", "trust_remote_code")  # may change at resume
_DATA_FREE = ("base_model_id", "before_after", "eval_dataset")
_DATA_TRAINING = (
    "seed data_seed max_length truncation_mode packing packing_strategy shuffle_dataset completion_only_loss "
    "assistant_only_loss chat_template_path eos_token dataset_text_field dataset_kwargs"
).split()


@dataclass(frozen=True)
class RecipeDiff:
    """The keys that differ between two recipes, each with its old and its new value."""

    objective: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    model: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    data: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    other: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def forbidden(self) -> dict[str, tuple[Any, Any]]:
        """The changes under which a run cannot be continued: those of objective, model and data."""
        return {**self.objective, **self.model, **self.data}


def changes_text(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Return changes as a message shows them: `seed: 1 -> 2, packing: false -> true`."""
    return ", ".join(
        f"{to_line(key, old)} -> {to_line(key, new).partition(': ')[2]}"
        for key, (old, new) in changes.items()
    )


def diff_recipes(old: Recipe, new: Recipe) -> RecipeDiff:
    """Compare the recipe of an earlier run with this one's; an unset key equals its default written out."""
    diff = RecipeDiff()
    before, after = _settings(old), _settings(new)
    for key, value in after.items():
        if before[key] == value or key in (*RUN_ONLY_KEYS, *SECRETS):
            continue
        part = recipe_keys()[key].part
        if key in OBJECTIVE_KEYS:
            group = diff.objective
        elif key in ("gguf_file", "model_init_kwargs") or (part == "model" and key not in _MODEL_FREE):
            group = diff.model
        elif key in _DATA_TRAINING or (part == "data" and key not in _DATA_FREE):
            group = diff.data
        else:
            group = diff.other
        group[key] = (before[key], value)
    return diff


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Every setting by key, with what the objective leaves unset filled in from the losses."""
    parts = (recipe.training, recipe.model, recipe.data)
    settings = {item.name: getattr(part, item.name) for part in parts for item in fields(part)}
    for key in ("token_loss", "number_loss"):
        loss = loss_classes(key).get(settings[key])
        defaults = {item.name: item.default for item in fields(loss) if item.init} if loss else {}
        settings[f"{key}_kwargs"] = {**defaults, **(settings[f"{key}_kwargs"] or {})}
        if key == "number_loss" and settings["number_loss_weight"] is None:
            settings["number_loss_weight"] = getattr(loss, "default_weight", None)
        if key == "number_loss" and settings["place_weighting"] is None:
            settings["place_weighting"] = getattr(loss, "default_place_weighting", None)
    settings["place_weighting_kwargs"] = settings["place_weighting_kwargs"] or {}
    return {key: settings[key] for key in recipe_keys() if key in settings}
