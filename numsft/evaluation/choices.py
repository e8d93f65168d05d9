r"""The strict rules for multiple choice: a letter counts only where it is marked as one.

Marked are `(B)`, "option B", a box, the letter right behind "the answer is", and a letter that ends the text.
The article "a" and the pronoun "I" are words; a letter beyond the options offered is no answer; two letters
in the deciding sentence are no answer either.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from numsft.evaluation.programs import own_answer
from numsft.evaluation.strict import boxes, triggered

_TRIGGER = re.compile(
    r"(?:\b(?:answers?|(?:correct|right|best|final)\s+(?:answer|option|choice|one))\b(?:\s+(?:option|choice))?"
    r"(?:\s+(?:to|for|of)\s[^.\n]{0,80}?)?[*_\s]*"
    r"(?:\bis\b|\bwas\b|\b(?:will|would|should|must)\s+be\b|:|=)[*_\s]*:?|####)",
    re.IGNORECASE,
)
_MARKED = re.compile(
    r"(?<![A-Za-z0-9\\])\(\s*([A-Ja-j])\s*\)"
    r"|\b(?:[Oo]ption|[Cc]hoice|OPTION|CHOICE)\s*:?\s*[*_]*\(?([A-J])\b(?!')"
    r"|\\(?:text|mathrm|mathbf|textbf)\{\s*\(?([A-J])\)?\s*\}"
)
_LEADING = re.compile(r"[\s*_$(\[{\\:]*([A-J])(?:[*_$)\]}]|[.,;:](?:\s|$)|\s*$|\s*\n)")
_TRAILING = re.compile(r"(?:^|[\s*_(\[$:])([A-J])[\s*_)\]$.!]*$")
_SENTENCE = re.compile(r"[^.\n!?]+(?:\.(?!\s|$)[^.\n!?]*)*")


class Choice(NamedTuple):
    """The letter a text chooses, "" for none, and where: boxed, trigger, marked, trailing or ""."""

    letter: str
    source: str


def strict_choice(text: str, options: int) -> Choice:
    """The letter that a text chooses among the first `options` letters of the alphabet."""
    text = own_answer(text).strip()
    allowed = "ABCDEFGHIJ"[:options]
    for content in reversed(boxes(text)):
        letters = _marked(content) or _leading(content)
        if letters:
            return _only(letters, allowed, "boxed")
    for segment in reversed(triggered(text, _TRIGGER)):
        letters = _leading(segment) or _marked(segment)[:1]
        if letters:
            return _only(letters, allowed, "trigger")
    trailing = _TRAILING.search(text)
    if trailing and trailing[1] in allowed and not _sentence_is_longer_word(text, trailing.start(1)):
        return Choice(trailing[1], "trailing")
    for sentence in reversed(_SENTENCE.findall(text)):
        letters = _marked(sentence)
        if letters:
            return _only(letters, allowed, "marked")
    return Choice("", "")


def option_count(question: str) -> int:
    """How many options a question lists behind "Answer Choices:", as (A), (B) and so on."""
    listed = question.rsplit("Answer Choices:", 1)[-1]
    count = 0
    while count < 10 and f"({'ABCDEFGHIJ'[count]})" in listed:
        count += 1
    return count


def _marked(text: str) -> list[str]:
    return [(first or second or third).upper() for first, second, third in _MARKED.findall(text)]


def _leading(text: str) -> list[str]:
    match = _LEADING.match(text)
    return [match[1]] if match else []


def _only(letters: list[str], allowed: str, source: str) -> Choice:
    one = set(letters)
    return Choice(letters[0], source) if len(one) == 1 and letters[0] in allowed else Choice("", "")


def _sentence_is_longer_word(text: str, at: int) -> bool:
    """A letter behind a hyphen or an apostrophe is part of a word."""
    return at > 0 and text[at - 1] in "-'’"
