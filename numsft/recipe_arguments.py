"""The command line of a run: the recipe, `--key value` overrides of its keys, and the command's flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, get_args

from numsft.errors import UserError
from numsft.recipe_types import BLOCKS, Key, Mismatch, choices_of, convert, recipe_keys, unknown_key
from numsft.recipe_yaml import Scalar, parse, resolve_scalar

COMMAND_LINE = "the command line"
USAGE = "python -m numsft.run RECIPE [--key value ...] [--dry_run]"


@dataclass(frozen=True)
class RunFlags:
    """Flags of `numsft.run` that are not keys of a recipe."""

    dry_run: bool = False
    accelerate_config: str | None = None
    gpus: int | None = None
    gpu_memory: float | None = None


_FLAG_TYPES: dict[str, Any] = {"dry_run": bool, "accelerate_config": str, "gpus": int, "gpu_memory": float}
_FLAG_HELP = {
    "dry_run": "Print the resolved configuration and the checks, train nothing and write nothing.",
    "accelerate_config": "With --dry_run: estimate the memory a GPU under this accelerate configuration.",
    "gpus": "With --accelerate_config: number of GPUs, over the file's own number of processes.",
    "gpu_memory": "With --accelerate_config: memory of a GPU in GB.",
}


def split_arguments(argv: Sequence[str]) -> tuple[str, list[str], RunFlags]:
    """Split the arguments of `numsft.run`.

    Args:
        argv: Without the program's name.

    Returns:
        The recipe's path, the overrides for `load_recipe`, and the command's own flags.

    Raises:
        UserError: Without a recipe, or for a flag's value that cannot be used.
        SystemExit: With status 0, after `--help` has been printed.
    """
    if any(argument in ("-h", "--help") for argument in argv):
        print(help_text())
        raise SystemExit(0)
    recipe: str | None = None
    overrides: list[str] = []
    flags = RunFlags()
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        name, glued, text = argument.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if argument.startswith("--") and name in _FLAG_TYPES:
            takes = _FLAG_TYPES[name] is not bool or (rest and rest[0].lower() in ("true", "false"))
            if not glued and takes and rest:
                text, glued = rest.pop(0), "="
            flags = replace(flags, **{name: _flag(name, text if glued else None)})
        elif recipe is None and not overrides and not argument.startswith("-"):
            recipe = argument
        else:
            overrides.append(argument)
    if recipe is None:
        raise UserError(f"no recipe is given: the first argument is its path, as in `{USAGE}`")
    return recipe, overrides, flags


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--key value`, `--key=value`, `--flag`, `--list a b`, `--mapping.key value` into a recipe's keys.

    Dashes in keys count as underscores; where a key comes twice the later value wins. Values are as the YAML
    reader gives them, their types still to be checked.
    """
    entries: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            raise UserError(
                f"{argument!r} on {COMMAND_LINE} is not of the form `--key value`: put its key before it"
            )
        name, glued, text = argument[2:].partition("=")
        name, _, inner = name.replace("-", "_").partition(".")
        key = recipe_keys().get(name)
        texts = [text] if glued else []
        while rest and not rest[0].startswith("--") and not glued:
            texts.append(rest.pop(0))
        if key is None:
            value = resolve_scalar(texts[0]) if texts else None
            raise unknown_key(name, recipe_keys(), COMMAND_LINE, value=value)
        if inner:
            _set_inner(entries, name, inner, _one(f"{name}.{inner}", texts))
        elif (
            isinstance(entries.get(name), dict)
            and (value := _value(name, key, texts))
            and isinstance(value, dict)
        ):
            entries[name].update(value)
        else:
            entries[name] = _value(name, key, texts)
    return entries


def help_text() -> str:
    """Return what `--help` prints: the flags, and every key with its default, from the dataclasses."""
    lines = [f"usage: {USAGE}", "", "Trains as the recipe says. Flags of the command:"]
    lines += [f"  --{flag.name}  {_FLAG_HELP[flag.name]}" for flag in fields(RunFlags)]
    titles = {"shape": "Model", "model": None, "data": "Data", "training": "Objective and training"}
    part = ""
    for name, key in recipe_keys().items():
        if key.part != part and titles[key.part]:
            lines += ["", f"{titles[key.part]} (a key of the recipe, or `--key value`):"]
        part = key.part
        default = "" if key.default is None or key.default is MISSING else f" [{str(key.default) or 'empty'}]"
        choices = f" One of {', '.join(choices_of(name))}." if choices_of(name) else ""
        lines.append(f"  --{name}{default}  {key.help.replace('%%', '%')}{choices}")
    return "\n".join(lines)


def _flag(name: str, text: str | None) -> Any:
    kind = _FLAG_TYPES[name]
    if text is None:
        if kind is bool:
            return True
        raise UserError(f"--{name} has no value: write it after the flag")
    try:
        return convert(resolve_scalar(text), kind)
    except Mismatch as error:
        raise UserError(f"--{name} is {text!r}, but should be {error}") from None


def _one(name: str, texts: list[str]) -> Any:
    """The one value of an inner key, which may be a list or mapping in YAML's flow style."""
    if len(texts) != 1:
        raise UserError(
            f"--{name} on {COMMAND_LINE} has {len(texts)} values, but takes one: write `--{name} VALUE`"
        )
    text = texts[0]
    return parse(text, f"--{name}") if text[:1] in ("[", "{") else resolve_scalar(text)


def _value(name: str, key: Key, texts: list[str]) -> Any:
    members = get_args(key.hint) or (key.hint,)
    if not texts:
        if bool in members or name == "resume_from_checkpoint":
            return resolve_scalar("true")
        raise UserError(f"--{name} on {COMMAND_LINE} has no value: write `--{name} VALUE`")
    takes_list = any(getattr(member, "__origin__", member) is list for member in (key.hint, *members))
    if len(texts) > 1:
        if not takes_list:
            raise UserError(f"--{name} on {COMMAND_LINE} has {len(texts)} values, but takes one: quote it")
        return [resolve_scalar(text) for text in texts]
    if name in BLOCKS and texts[0][:1] == "{":
        return parse(texts[0], f"--{name}")
    if takes_list and texts[0][:1] == "[":
        try:
            value = parse(texts[0], f"--{name}")
        except UserError:
            return texts[0]  # a text that only begins like a list, such as `[INST] {prompt} [/INST]`
        if isinstance(value, list) and all(isinstance(item, str | Scalar) for item in value):
            return value
    return resolve_scalar(texts[0])


def _set_inner(entries: dict[str, Any], name: str, inner: str, value: Any) -> None:
    known = recipe_keys()[name]
    if dict not in [getattr(member, "__origin__", member) for member in get_args(known.hint)]:
        raise UserError(
            f"--{name}.{inner} on {COMMAND_LINE} has a point, but {name} is no mapping: write `--{name}`"
        )
    block = entries.setdefault(name, {})
    if not isinstance(block, dict):
        raise UserError(
            f"--{name}.{inner} on {COMMAND_LINE} contradicts `--{name} {block}`: write one of the two"
        )
    *path, last = inner.split(".")
    for step in path:
        block = block.setdefault(step, {})
    block[last] = value
