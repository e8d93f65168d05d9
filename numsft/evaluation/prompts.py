"""Prompts of both passes, stop strings and token limits, as the DEL paper's evaluation has them.

The text around a question is the training template `alpaca`, so that a model is asked as it was trained; for
a model trained on chat messages it is the tokenizer's chat template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numsft.data.prompts import ALPACA
from numsft.errors import UserError
from numsft.evaluation.benchmarks import Question, kind_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATES = ("alpaca", "chat", "none")

PROGRAM_SUFFIX = " Let's write a program."
CHOICE_OPENING = " Let's solve the multi-choice question step by step.\n"

_RUN_ON = ("USER:", "ASSISTANT:", "### Instruction:", "<|eot_id|>")
# Also "####", which GSM8K-style answers start with, and words that a solution may contain.
_PAPER_ONLY = ("Response:", "\n\nProblem", "\nProblem", "Problem:", "####")
_STRICT_ONLY = ("### Response:", "\n\nProblem:", "\nProblem:")


def program_prompt(question: Question) -> str:
    """The prompt of the first pass on an open benchmark: the question, answered by a program."""
    return ALPACA.replace("{prompt}", question.question + PROGRAM_SUFFIX)


def reasoning_prompt(question: Question) -> str:
    """The prompt of the backup pass, and of the only pass on a multiple-choice benchmark."""
    text = ALPACA.replace("{prompt}", question.question)
    return text + CHOICE_OPENING if kind_of(question.benchmark) == "choice" else text


def prompt(
    question: Question, form: str, template: str = "alpaca", tokenizer: PreTrainedTokenizerBase | None = None
) -> str:
    """The prompt in one of `TEMPLATES`.

    Args:
        question: What is asked.
        form: `"pot"` (answered by a program) or `"cot"` (by reasoning).
        template: `"alpaca"`, `"chat"`, or `"none"`: the question and a line break.
        tokenizer: Has the chat template, where that is asked for.

    Raises:
        UserError: If there is no such template.
    """
    if template == "alpaca":
        return program_prompt(question) if form == "pot" else reasoning_prompt(question)
    text, opening = message(question, form), message_opening(question)
    if template == "none":
        return f"{text}\n{opening}"
    if template != "chat":
        raise UserError(f"prompt_template is {template!r}; expected one of {', '.join(TEMPLATES)}")
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise UserError("the tokenizer has no chat template; ask with --prompt_template alpaca or none")
    asked = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)) + opening


def message(question: Question, form: str) -> str:
    """What a user would write: the question, with the request for a program where `form` is `"pot"`."""
    return question.question + (PROGRAM_SUFFIX if form == "pot" else "")


def message_opening(question: Question) -> str:
    """How the answer to a message begins: on multiple choice with the published words, else with none."""
    return CHOICE_OPENING.lstrip() if kind_of(question.benchmark) == "choice" else ""


def stop_strings(mode: str) -> tuple[str, ...]:
    """Strings at which generation stops.

    The published list stops at "####", before a model trained on GSM8K's format writes its answer, and at
    "Response:" and "Problem:" anywhere. `strict` stops only where the model starts a new dialogue turn; a
    text so generated is cut by `cut_at_stops` before the paper's rules score it.
    """
    return (*_RUN_ON, *(_PAPER_ONLY if mode == "paper" else _STRICT_ONLY))


def cut_at_stops(text: str) -> str:
    """The text up to the first of the published stop strings: what the published run would have kept."""
    places = [place for stop in stop_strings("paper") if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def max_new_tokens(benchmark: str) -> int:
    """The published limit: 1500 tokens on open benchmarks, 2048 on multiple choice."""
    return 2048 if kind_of(benchmark) == "choice" else 1500
