r"""Prompt templates: the text around a question, and what the completion then starts with.

`alpaca` is, with the blank lines as they stand and nothing after the last colon::

    Below is an instruction that describes a task. Write a response that appropriately completes the request.

    ### Instruction:
    {prompt}

    ### Response:

It is the prompt of the evaluation, so a model is asked as it was trained. Its completions start with one
space, because " 42" and " Let" never share a token with the colon before them, while ":\n" (Qwen) and
":import" may: then the prompt alone would not be the beginning of prompt and completion. A generated text
therefore starts with that space; strip it before running it as a program. A template of one's own gets the
space too, unless it ends in white space.

The family `alpaca_1` to `alpaca_12` is six preambles over two styles of headers; `alpaca_1` is `alpaca`, and
`alpaca_mix` is all twelve. DEL's published script has as many, and draws one a process; here a list is drawn
from row by row (`numsft.data`), so that a run has them all whatever its ranks.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from numsft.data.adapters import Adapter, Text
from numsft.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ALPACA = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{prompt}\n\n### Response:"
)
_PREAMBLES = (
    ALPACA.partition("\n\n")[0],
    "Here is a task. Answer it in full and check every step.",
    "Read the instruction, then write the response that it asks for.",
    "Somebody needs help with the following. Solve it and state the result.",
    "You are given one instruction. Carry it out and reply with the solution.",
    "What follows is a question or a job to do. Give the reply that settles it.",
)
_HEADERS = ("### Instruction:\n{prompt}\n\n### Response:", "Instruction:\n{prompt}\n\nResponse:")
FAMILY = {
    f"alpaca_{number}": f"{preamble}\n\n{headers}"
    for number, (headers, preamble) in enumerate(product(_HEADERS, _PREAMBLES), start=1)
}
"""The twelve templates by name, the first being `ALPACA`."""

_TEXTS = {"alpaca": ALPACA, **FAMILY}
_EXPECTED = (
    "expected alpaca, alpaca_1 to alpaca_12, alpaca_mix (all twelve), chat, none, or a text with {prompt}"
)


def check_template(
    template: str | list[str] | None,
    adapter: Adapter,
    conversational: bool,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[str, ...]:
    """The templates to choose from: the recipe's, with `alpaca_mix` spelt out, or the adapter's own.

    Raises:
        UserError: A template that is none, that does not fit the data, or needs a chat template that is not
        there.
    """
    if template is None:
        template = "chat" if conversational else adapter.template
    named = tuple(template) if isinstance(template, (list, tuple)) else (template,)
    if not named:
        raise UserError(f"prompt_template is an empty list; {_EXPECTED}, or several of them")
    known = ("chat", "none", "alpaca_mix", *_TEXTS)
    for name in named:
        if not isinstance(name, str) or (name not in known and "{prompt}" not in name):
            raise UserError(f"prompt_template is {name!r}; {_EXPECTED}")
    templates = tuple(text for name in named for text in (FAMILY if name == "alpaca_mix" else [name]))
    if len(templates) > 1 and "chat" in templates:
        raise UserError(
            "prompt_template lists chat beside others; expected chat alone, or several text templates"
        )
    if conversational and templates != ("chat",):
        raise UserError(
            f"prompt_template is {templates[0]!r} but the rows are chat messages, which the tokenizer's "
            "chat template renders; set prompt_template to chat or leave it out"
        )
    if templates == ("chat",) and not getattr(tokenizer, "chat_template", None):
        name = getattr(tokenizer, "name_or_path", "") or "the model"
        raise UserError(
            f"the tokenizer of {name} has no chat template, which chat prompts need; set prompt_template to "
            "alpaca or none with text rows, or chat_template_path to a template"
        )
    return templates


def render(
    prompt: Text, completion: Text, templates: tuple[str, ...], adapter: Adapter, draw: int
) -> tuple[Text, Text]:
    """Puts the template that `draw` picks around the prompt, and joins the completion to it.

    With `none`, prompt and completion stay as they are; only a question and its answer get a line break
    between them where neither brings white space.
    """
    if not isinstance(prompt, str) or not isinstance(completion, str):
        return prompt, completion
    template = templates[draw % len(templates)]
    if template == "chat":
        return _message("user", prompt), _message("assistant", completion)
    if template == "none":
        apart = prompt[-1:].isspace() or completion[:1].isspace()
        return (prompt if adapter.verbatim or apart else prompt + "\n"), completion
    text = _TEXTS.get(template, template).replace("{prompt}", prompt)
    return text, completion if text[-1:].isspace() else " " + completion.lstrip()


def _message(role: str, content: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": content}]
