"""The keys a recipe may have and the type of each, taken from the dataclasses that the keys end up in."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from numsft.errors import UserError
from numsft.recipe_yaml import Scalar, describe, parse, plain

SHAPE = {
    "layers": int,
    "hidden": int,
    "intermediate": int,
    "heads": int,
    "kv_heads": int,
    "vocabulary": int,
    "tied": bool,
}
PLACE_OPTIONS = {"k": float, "beta": float, "decimal_offset": int}
BLOCKS = ("shape", "token_loss_kwargs", "number_loss_kwargs", "place_weighting_kwargs", "accelerator_config")
"""Mappings whose inner keys are known, and checked once the recipe is merged."""

_FILES = ("accelerator_config", "fsdp_config", "deepspeed")  # a mapping, or the path of a file that holds one
_LOSSES = ("token_loss", "number_loss")
_NAME_LIST = re.compile(r"[\w.-]+(,[\w.-]+)+")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a mapping"}


@dataclass(frozen=True)
class Key:
    """One key: the part of the recipe it belongs to, its type, allowed values, default and help."""

    part: str
    hint: Any
    choices: tuple[str, ...] = ()
    default: Any = None
    help: str = ""


class Mismatch(TypeError):
    """A value that is not of the key's type; the message says what was expected."""


@cache
def recipe_keys() -> dict[str, Key]:
    """Return every key but `extends`: `shape`, then the fields of the model, the data and the training."""
    from trl import ModelConfig  # type: ignore[attr-defined]

    from numsft.config import DataConfig, NumSFTConfig

    keys = {"shape": Key("shape", dict[str, Any] | None, help="Size of the model, for estimates.")}
    for part, owner in (("model", ModelConfig), ("data", DataConfig), ("training", NumSFTConfig)):
        hints = get_type_hints(owner)
        for field in dataclasses.fields(owner):
            hint = hints[field.name]
            if field.name not in _FILES and any(_base(member) is dict for member in _members(hint)):
                hint = dict[str, Any] | None  # TRL's `| str` is a mapping written as text
            if field.name == "fsdp":
                hint = (
                    bool | str | None
                )  # transformers documents `true`, and deprecates the text it is typed as
            choices = tuple(map(str, field.metadata.get("choices") or ()))
            made = field.default_factory() if callable(field.default_factory) else field.default
            keys[field.name] = Key(part, hint, choices, made, field.metadata.get("help", ""))
    return keys


def loss_classes(key: str) -> Mapping[str, type]:
    """Return the losses that `token_loss` or `number_loss` can name."""
    from numsft import losses

    classes: Mapping[str, type] = losses.TOKEN_LOSSES if key == "token_loss" else losses.NUMBER_LOSSES
    return classes


def choices_of(key: str) -> tuple[str, ...]:
    """Return the words that a top-level key can have, or nothing where it takes any value of its type."""
    if key in _LOSSES:
        return (*loss_classes(key), *(["none"] if key == "number_loss" else []))
    return recipe_keys()[key].choices


def block_keys(block: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inner keys of a block of `BLOCKS`, with their types; `values` say which losses are used."""
    if block == "shape":
        return dict(SHAPE)
    if block == "place_weighting_kwargs":
        return dict(PLACE_OPTIONS)
    if block == "accelerator_config":
        from transformers.trainer_pt_utils import AcceleratorConfig

        return get_type_hints(AcceleratorConfig)
    key = block.removesuffix("_kwargs")
    loss = loss_classes(key).get(values.get(key) or recipe_keys()[key].default)
    if loss is None or not dataclasses.is_dataclass(loss):
        return {}
    hints = get_type_hints(loss)
    return {option.name: hints[option.name] for option in dataclasses.fields(loss) if option.init}


def check_value(key: str, value: Any, source: str) -> Any:
    """Return the value of a top-level key in its type.

    Args:
        key: A key of `recipe_keys()`.
        value: As the YAML reader gives it.
        source: The file, or the command line, that it comes from.

    Raises:
        UserError: Naming file, key, value and what was expected.
    """
    if key in BLOCKS and isinstance(value, dict):
        return value  # its scalars are needed until the inner keys are checked
    checked = _checked(key, value, recipe_keys()[key].hint, source)
    choices = choices_of(key)
    if choices and checked is not None and checked not in choices:
        raise UserError(
            f"{source}: {key} is {describe(value)}, but should be one of {', '.join(choices)}"
            + _near(checked, choices)
        )
    return checked


def check_block(block: str, values: Mapping[str, Any], source_of: Mapping[str, str]) -> Any:
    """Return a block of `BLOCKS` with its inner keys checked and its values in their types."""
    entries, known = values[block], block_keys(block, values)
    if not isinstance(entries, dict):
        return entries
    checked = {}
    for key, value in entries.items():
        source = source_of.get(f"{block}.{key}", source_of[block])
        if key not in known:
            loss = block.removesuffix("_kwargs")
            owner = f"{loss} {values.get(loss) or recipe_keys()[loss].default}" if loss in _LOSSES else block
            raise unknown_key(f"{block}.{key}", known, source, prefix=f"{block}.", owner=owner)
        checked[key] = _checked(f"{block}.{key}", value, known[key], source)
    return checked


def unknown_key(
    key: str, known: Iterable[str], source: str, *, prefix: str = "", owner: str = "", value: Any = None
) -> UserError:
    """Return the error for a key that nothing reads, with the nearest one that something does."""
    names = [str(name) for name in known]
    if key == "warmup_ratio":
        share = plain(value) if isinstance(plain(value), int | float) else 0.03
        return UserError(
            f"unknown key 'warmup_ratio' in {source}: write `warmup_steps: {share}`, which takes a share"
        )
    if not names:
        return UserError(f"unknown key '{key}' in {source}: {owner} has no options, so remove it")
    inner = str(key).removeprefix(prefix)
    close = difflib.get_close_matches(inner, names, n=1, cutoff=0)
    return UserError(f"unknown key '{key}' in {source}: did you mean '{prefix}{close[0]}'?")


def convert(value: Any, hint: Any) -> Any:
    """Return `value`, as the YAML reader gives it, in the type of the annotation `hint`.

    A whole number may be written `1e1`, a boolean `yes` or `off`, a list of one as its item, and a text field
    takes a number as it was written.

    Raises:
        Mismatch: Saying which type was expected.
    """
    members = _members(hint)
    if Any in members:
        return plain(value)
    for attempt in (_exact, _lenient):
        for member in members:
            try:
                return attempt(value, member)
            except Mismatch:
                continue
    raise Mismatch(_expected(members))


def _checked(key: str, value: Any, hint: Any, source: str) -> Any:
    try:
        return convert(value, hint)
    except Mismatch as error:
        raise UserError(f"{source}: {key} is {describe(value)}, but should be {error}") from None


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union: null first, text last, no text beside an enum."""
    if get_origin(hint) not in (Union, types.UnionType):
        return (hint,)
    members = get_args(hint)
    has_enum = any(isinstance(member, type) and issubclass(member, Enum) for member in members)
    order = {type(None): 0, str: 2}
    kept = [member for member in members if not (member is str and has_enum)]
    return tuple(sorted(kept, key=lambda member: order.get(member, 1)))


def _base(member: Any) -> Any:
    return get_origin(member) or member


def _item_hint(member: Any) -> Any:
    """The type of a list's items, or of those of a tuple of any length."""
    return (get_args(member) or (Any,))[0]


def _exact(value: Any, member: Any) -> Any:
    """The value, where it is of this type as it stands."""
    base, meaning = _base(member), plain(value)
    if base is Literal:
        matches = [
            choice for choice in get_args(member) if type(choice) is type(meaning) and choice == meaning
        ]
        if matches:
            return matches[0]
    elif isinstance(base, type) and issubclass(base, Enum):
        text = value.text if isinstance(value, Scalar) else value
        if text in [item.value for item in base]:
            return text
    elif member is type(None):
        if meaning is None:
            return None
    elif base in (list, tuple) and isinstance(value, list):
        return base(convert(item, _item_hint(member)) for item in value)
    elif base in (bool, int, float, str, dict) and type(meaning) is base:
        return meaning
    raise Mismatch


def _lenient(value: Any, member: Any) -> Any:
    """The value as this type, where it can be read as one without guessing."""
    base, meaning = _base(member), plain(value)
    number = isinstance(meaning, int | float) and not isinstance(meaning, bool)
    if base is float and number:
        return meaning
    if base is int and number and math.isfinite(meaning) and meaning == int(meaning):
        return int(meaning)
    if base is bool and isinstance(meaning, str) and meaning.lower() in _WORDS:
        return _WORDS[meaning.lower()]
    if member is type(None) and meaning in ("none", "None"):
        return None
    if base is str and isinstance(value, Scalar) and meaning is not None:
        return value.text
    if isinstance(value, str) and value[:1] == {list: "[", tuple: "[", dict: "{"}.get(base, "no"):
        try:
            return _exact(parse(value, "the value"), member)
        except UserError:
            raise Mismatch from None
    if base is list and not isinstance(value, list | dict) and meaning is not None:
        items = value.split(",") if isinstance(value, str) and _NAME_LIST.fullmatch(value) else [value]
        return [convert(item, _item_hint(member)) for item in items]
    raise Mismatch


def _expected(members: tuple[Any, ...]) -> str:
    named: list[str] = []
    for member in members:
        base = _base(member)
        if base is Literal:
            named.extend(str(choice) for choice in get_args(member))
        elif isinstance(base, type) and issubclass(base, Enum):
            named.append("one of " + ", ".join(str(item.value) for item in base))
        elif base in (list, tuple):
            named.append(
                {int: "a list of whole numbers", float: "a list of numbers"}.get(_item_hint(member), "a list")
            )
        elif member is not type(None):
            named.append(_NAMES.get(base, getattr(base, "__name__", str(base))))
    return " or ".join(dict.fromkeys(named)) or "null"


def _near(word: Any, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(choices), n=1)
    return f": did you mean '{close[0]}'?" if close else ""
