"""From a dataset's columns to prompt and completion: one small function an adapter, one table.

A row of MathInstruct is `{"source": ..., "instruction": "Tom has 3 ...", "output": "import math ..."}`; of
GSM8K `{"question": ..., "answer": "... #### 72"}`; of a chat `{"messages": [{"role": "user", "content": ...},
...]}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from numsft.data.read import Source
from numsft.errors import UserError

Messages = list[dict[str, Any]]
Text = str | Messages
Pair = tuple[Text, Text]


@dataclass(frozen=True)
class Adapter:
    """How to read one kind of dataset.

    Attributes:
        columns: The columns it needs; the first adapter whose columns are all there is used.
        pairs: (row, where) to the (prompt, completion) pairs in it; `where` is for the error message.
        template: The prompt template used where the recipe names none.
        verbatim: The prompt already ends as it should, so `none` adds no line break.
    """

    columns: tuple[str, ...]
    pairs: Callable[[dict[str, Any], str], Iterator[Pair]]
    template: str = "none"
    verbatim: bool = False


def _text(row: dict[str, Any], column: str, where: str) -> str:
    value = row.get(column)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):
        found = str(value)  # how JSON files made from tables show an empty cell
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return _encodable(str(value), column, where)
    else:
        found = "nothing" if value is None else type(value).__name__
    raise UserError(f"{where} has {found} in column {column!r}; expected text there")


def _encodable(text: str, column: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{where} has half a surrogate pair ({text[error.start]!r}) in column {column!r}; expected "
                "text that UTF-8 can hold"
            ) from error
    return text


def _messages(value: list[Any], column: str, where: str) -> Messages:
    for message in value:
        fits = isinstance(message, dict) and isinstance(message.get("role"), str)
        if not fits or not isinstance(message.get("content"), str) or message.get("tool_calls"):
            raise UserError(
                f"{where} has a message in column {column!r} that is not a role and a text; expected "
                '{"role": "user", "content": "..."} without tool calls'
            )
    return [
        {"role": message["role"], "content": _encodable(message["content"], column, where)}
        for message in value
    ]


def _prompt_completion(prompt: str, completion: str) -> Callable[[dict[str, Any], str], Iterator[Pair]]:
    """Two columns, both text or both message lists."""

    def pairs(row: dict[str, Any], where: str) -> Iterator[Pair]:
        if isinstance(row.get(prompt), list) and isinstance(row.get(completion), list):
            question, answer = (_messages(row[column], column, where) for column in (prompt, completion))
            if not question or not answer:
                raise UserError(
                    f"{where} has an empty message list; expected messages in {prompt} and {completion}"
                )
            yield question, answer
        else:
            yield _text(row, prompt, where), _text(row, completion, where)

    return pairs


def _instruction(row: dict[str, Any], where: str) -> Iterator[Pair]:
    """`instruction` and `output`, with Alpaca's optional `input` below the instruction."""
    instruction = _text(row, "instruction", where)
    if row.get("input"):
        instruction += "\n" + _text(row, "input", where)
    yield instruction, _text(row, "output", where)


def _conversation(row: dict[str, Any], where: str) -> Iterator[Pair]:
    """One pair an assistant turn, with all turns before it as the prompt: each answer is trained once."""
    if not isinstance(row.get("messages"), list):
        raise UserError(
            f"{where} has no message list in column 'messages'; expected a list of role and content"
        )
    if row.get("tools"):
        raise UserError(f"{where} defines tools, which are not supported; expected plain chat messages")
    messages = _messages(row["messages"], "messages", where)
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant" and i > 0]
    if not answers:
        raise UserError(f"{where} has no assistant message after a first one; expected an answer to train on")
    for i in answers:
        yield messages[:i], [messages[i]]


ADAPTERS = {
    "prompt/completion": Adapter(
        ("prompt", "completion"), _prompt_completion("prompt", "completion"), verbatim=True
    ),
    "chat": Adapter(("messages",), _conversation, "chat"),
    "MathInstruct": Adapter(("instruction", "output"), _instruction, "alpaca"),
    "GSM8K": Adapter(("question", "answer"), _prompt_completion("question", "answer")),
}
NUPA = Adapter(("prompt", "answer"), _prompt_completion("prompt", "answer"), verbatim=True)


def choose_adapter(source: Source, prompt_column: str | None, completion_column: str | None) -> Adapter:
    """The adapter for the two columns named, or the first whose columns the source has."""
    found = source.columns()
    if prompt_column or completion_column:
        if not (prompt_column and completion_column):
            given, other = ("prompt_column", "completion_column")[:: 1 if prompt_column else -1]
            raise UserError(
                f"{given} is set without {other}; set both, from the columns found: {', '.join(found)}"
            )
        for key, column in (("prompt_column", prompt_column), ("completion_column", completion_column)):
            if column not in found:
                raise UserError(
                    f"{key} is {column!r}, which {source.name} does not have; set it to one of the columns "
                    f"found: {', '.join(found)}"
                )
        return Adapter(
            (prompt_column, completion_column), _prompt_completion(prompt_column, completion_column)
        )
    for adapter in ADAPTERS.values():
        if all(column in found for column in adapter.columns):
            return adapter
    expected = "; ".join(f"{' and '.join(adapter.columns)} ({name})" for name, adapter in ADAPTERS.items())
    raise UserError(
        f"{source.name} has the columns {', '.join(found)}; expected {expected}; or set prompt_column and "
        "completion_column to two of the columns found"
    )


def adapt(source: Source, adapter: Adapter) -> Iterator[tuple[str, Pair]]:
    """Every pair of the source, with the place it came from."""
    for where, row in source.rows():
        for pair in adapter.pairs(row, where):
            yield where, pair
