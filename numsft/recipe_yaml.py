"""Reading and writing the YAML of recipes: YAML 1.2 scalars, no key twice, one line a key when written.

PyYAML follows YAML 1.1, where `5e-6` is text and `no` is false. Here only `true` and `false` are booleans,
every usual spelling of a number is one, and a scalar that is not text keeps its spelling, for text fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from numsft.errors import UserError

_TAG = "tag:yaml.org,2002:"
_DOCUMENT_END = "\n..."
_RULES = {  # YAML 1.2 core schema
    "null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


@dataclass(frozen=True)
class Scalar:
    """A scalar that is not text: its value and how it was written."""

    value: bool | int | float | None
    text: str


def resolve_scalar(text: str) -> Scalar | str:
    """Return what an unquoted scalar means: `5e-6` and `1e3` are numbers, `no` and `off` are text."""
    for kind, rule in _RULES.items():
        if rule.match(text) and len(text) < 1000:  # Python refuses integers of thousands of digits
            return Scalar(_value(kind, text), text)
    return text


def plain(value: Any) -> Any:
    """Return `value` with every `Scalar` in it replaced by what it means."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds one mapping.

    Args:
        path: The file. Its name, as given, stands in every message.

    Returns:
        Keys in the order of the file; values are text, `Scalar`, lists and dicts.

    Raises:
        UserError: Where the file is missing, is not YAML, is not a mapping or has a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"recipe {path} does not exist: give the path of a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"recipe {path} cannot be read ({_reason(error)}): give the path of a YAML file"
        ) from None
    value = parse(text, str(path))
    if isinstance(value, Scalar) and value.value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(
            f"{path} holds {describe(value)}, but a recipe is a mapping: write `key: value` lines"
        )
    return {key if isinstance(key, str) else str(key): item for key, item in value.items()}


def parse(text: str, source: str) -> Any:
    """Parse one YAML document; `source` names it in messages."""
    try:
        node = yaml.compose(text, Loader=_Reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{source}{line}: not valid YAML ({error.problem}): correct the file") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{source}: not valid YAML ({_reason(error)}): correct the file") from None
    return Scalar(None, "") if node is None else _convert(node, source, ())


def describe(value: Any) -> str:
    """Return a value as a message shows it, cut to 60 characters."""
    shown = value.text if isinstance(value, Scalar) else repr(plain(value))
    return (shown if len(shown) <= 60 else shown[:57] + "...") or "empty"


def to_line(key: str, value: Any) -> str:
    """Return `key: value`, one line in flow style, the same value to readers of YAML 1.1 and 1.2."""
    text = yaml.dump(
        value,
        Dumper=_Writer,
        default_flow_style=True,
        width=float("inf"),
        sort_keys=False,
        allow_unicode=True,
    )
    return f"{key}: {text.rstrip().removesuffix(_DOCUMENT_END).rstrip()}"


def _value(kind: str, text: str) -> bool | int | float | None:
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return None


def _convert(node: yaml.Node, source: str, above: tuple[yaml.Node, ...]) -> Any:
    where = f"{source}, line {node.start_mark.line + 1}"
    if any(node is ancestor for ancestor in above):
        raise UserError(f"{where}: an alias contains itself: write the value out")
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return [_convert(item, source, above) for item in node.value]
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _convert_mapping(node, source, above)
    if isinstance(node, yaml.ScalarNode):
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return str(node.value)
        if kind in _RULES and _RULES[kind].match(node.value):
            try:
                return Scalar(_value(kind, node.value), node.value)
            except ValueError:  # Python refuses integers of thousands of digits
                shown = describe(node.value)
                raise UserError(f"{where}: {shown} is too long a number: shorten it") from None
    raise UserError(f"{where}: the tag {node.tag!r} is not supported: write a plain value")


def _convert_mapping(node: yaml.MappingNode, source: str, above: tuple[yaml.Node, ...]) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        where = f"{source}, line {key_node.start_mark.line + 1}"
        key = _convert(key_node, source, above)
        if isinstance(key, Scalar):
            key = key.value if len(above) > 1 else key.text
        if isinstance(key, list | dict):
            raise UserError(f"{where}: a list or mapping cannot be a key: write a name before the colon")
        if key in mapping:
            raise UserError(f"{where}: the key {key!r} is there twice: keep one of them")
        mapping[key] = _convert(value_node, source, above)
    return mapping


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).split("\n")[0]


class _Reader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (PyYAML's form)


class _Writer(yaml.SafeDumper):
    """Quotes every text that either version of YAML would read as something else."""

    yaml_implicit_resolvers: dict[Any, Any] = {  # noqa: RUF012 (PyYAML's form)
        first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _kind, _rule in _RULES.items():
    _first = [*"-+0123456789.~nNtTfF", ""]
    _Reader.add_implicit_resolver(f"{_TAG}{_kind}", _rule, _first)
    _Writer.add_implicit_resolver(f"{_TAG}{_kind}", _rule, _first)


def _represent_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    """Line breaks are escaped, to keep to one line."""
    return writer.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"')


_Writer.add_representer(str, _represent_text)
