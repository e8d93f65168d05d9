r"""MATH answers under the strict rules: a LaTeX normaliser, and exact comparison of what is numeric.

`\frac{1}{2}`, `0.5` and `\dfrac12` are one value; tuples are compared part by part, sets without order; text
is compared without case. An answer with variables must agree as text after normalising: `equal` never guesses
at algebra (math-verify does, see `math_verify`).
"""

from __future__ import annotations

import re
from fractions import Fraction

from numsft.evaluation.arithmetic import Value, evaluate
from numsft.evaluation.numbers import find_numbers, plain
from numsft.evaluation.programs import looks_like_code, own_answer
from numsft.evaluation.strict import asks_percent, boxes, close, triggered

_SPACES = re.compile(r"\\[,;:! ]|\\q?quad\b|~|\\(?:displaystyle|textstyle|limits)\b")
_FONTS = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname)\s*\{([^{}]*)\}"
)
_LABEL = re.compile(r"^\s*(?:[A-Za-z](?:_\{?\w+\}?)?(?:\([A-Za-z,]*\))?|\\[a-z]+)\s*(?:=|\\in\b|:)\s*(?=\S)")
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree\b|\\?\bdegrees?\b")
_GROUPS = re.compile(r"(?<![0-9.])([0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+)(?![0-9]|,[0-9])")
_MONEY = re.compile(r"\\\$|[€£¥]")
_UNIT = re.compile(
    r"(?<=[0-9})])\s*(?:\\text|\\mathrm|\\mbox)?\s*\{?\s*\b(?:"
    r"(?:square|sq|cubic)?\.?\s*(?:cm|mm|km|inch(?:es)?|in|ft|feet|foot|yards?|miles?|meters?|metres?|centimeters?|units?)"
    r"|seconds?|minutes?|hours?|days?|weeks?|months?|years?|mph|dollars?|cents?|pounds?|ounces?|grams?|kg"
    r"|points?|people|ways|students?|radians?)\b\.?\s*\}?(?:\s*\^\s*\{?\s*[23]\s*\}?)?\s*(?:per\s+\w+)?\s*$"
)
_SCRIPT = re.compile(r"([_^])\{(\w)\}")
# Longer texts are no answer, and comparing them would take time.
_MAX_ANSWER = 2000
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def math_answer(text: str, guess: bool = True) -> tuple[str, str]:
    """The answer of a text as LaTeX, and where it stood: boxed, trigger, last_number or "" for none."""
    text = own_answer(text)
    found = [content for content in boxes(text) if content.strip()]
    if found:
        return found[-1].strip(), "boxed"
    for segment in reversed(triggered(text)):
        answer = _mathematics(segment)
        if answer:
            return answer, "trigger"
    if guess and not looks_like_code(text):
        displayed = re.findall(r"\$([^$]+)\$", text.rstrip().rsplit("\n", 1)[-1])
        if displayed:
            return displayed[-1].rsplit("=", 1)[-1].strip(), "last_number"
        numbers = find_numbers(text)
        if numbers:
            return numbers[-1].text, "last_number"
    return "", ""


def _mathematics(segment: str) -> str:
    """The formula of a short text: what stands between dollar signs, or the text without its mark-up."""
    shown = re.findall(r"(?<!\\)\$+([^$]+?)(?<!\\)\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", segment)
    if shown:
        return "".join(shown[0]).strip()
    return segment.strip().strip("*_$").rstrip(".,;:").strip()


def normalise(text: str) -> str:
    r"""One spelling for one answer: no spaces, sizes, fonts, units or labels; `\frac{a}{b}` throughout."""
    text = text.strip().strip("$").strip()
    text = (
        text.replace("\\!", "")
        .replace("\\left", "")
        .replace("\\right", "")
        .replace("−", "-")
        .replace("\\{", "{")
        .replace("\\}", "}")
    )
    text = re.sub(r"\\[dtc]frac", r"\\frac", text)
    text = _DEGREE.sub("", text)
    text = _MONEY.sub("", text).replace("\\%", "%")
    text = _GROUPS.sub(lambda match: re.sub(r"[{},]", "", match[1]), _SPACES.sub(" ", text))
    text = text.rstrip(" .,;")
    text = _UNIT.sub("", text)
    text = _FONTS.sub(r"\1", text)
    text = _LABEL.sub("", text) if len(re.findall(r"=|\\in\b", text)) == 1 else text
    text = re.sub(r"(?<![0-9])\.([0-9])", r"0.\1", text)
    text = re.sub(r"\s+", "", text)
    text = _brace_arguments(text)
    text = re.sub(r"(?<![\w}/])(-?[0-9]+)/([0-9]+)(?![\w/])", r"\\frac{\1}{\2}", text)
    text = text.replace("\\frac{-", "-\\frac{")
    text = re.sub(r"\\([lgn])eq?(?![a-z])", r"\\\1eq", text)
    return _SCRIPT.sub(r"\1\2", text).lower()


def _brace_arguments(text: str) -> str:
    r"""Braces around one-character arguments: `\frac12`, `\frac1{72}`, `\sqrt3`."""
    text = re.sub(r"\\sqrt([0-9A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\frac([0-9A-Za-z])", r"\\frac{\1}", text)
    return re.sub(r"(\\frac\{[^{}]*\})([0-9A-Za-z])", r"\1{\2}", text)


def equal(answer: str, gold: str, question: str = "") -> str:
    """How a MATH answer matches the gold, or "" where it does not.

    Returns:
        "text" for equality after normalising, "exact", "tolerance" or "rounded" for numbers (by the rule of
        `strict.match_number`, with a relative 1e-6 for roots and π), "parts" for tuples, sets and intervals.
    """
    if len(answer) > _MAX_ANSWER:
        return ""
    left, right = normalise(answer), normalise(gold)
    if not left or not right:
        return ""
    if left == right:
        return "text"
    if left.strip("()") == right.strip("()") and len(right.strip("()")) == 1 and right.strip("()").isalpha():
        return "text"
    percents = left.endswith("%"), right.endswith("%")
    numeric = _numeric(left, right, percents, asks_percent(question))
    return numeric or _parts(left, right, question)


def _numeric(left: str, right: str, percents: tuple[bool, bool], asked: bool) -> str:
    written = re.search(r"\.([0-9]+)%?$", right)
    decimals = (len(written[1]) if written else 0) if "." in left + right or "e" in left else None
    value, gold = evaluate(left.rstrip("%")), evaluate(right.rstrip("%"))
    if value is None or gold is None:
        return ""
    if percents[0] != percents[1] and not asked:
        value = value / 100 if percents[0] else value * 100
    return _close(value, gold, decimals)


def _close(value: Value, gold: Value, decimals: int | None) -> str:
    """Compares two values; `decimals` is None where no point is written: then only equality counts."""
    if isinstance(gold, Fraction) and isinstance(value, Fraction):
        return ("exact" if value == gold else "") if decimals is None else close(value, gold, decimals)
    try:
        left, right = float(value), float(gold)
    except OverflowError:
        return ""
    return "tolerance" if abs(left - right) <= 1e-6 * abs(right) else ""


def _parts(left: str, right: str, question: str) -> str:
    """Compares lists part by part: tuples and intervals in order, with their brackets; sets in any order."""
    left_kind, left_parts = _split(left)
    right_kind, right_parts = _split(right)
    if len(left_parts) != len(right_parts) or len(right_parts) < 2 or len(right_parts) > 20:
        return ""
    unordered = {left_kind, right_kind} <= {"", "{}"}
    if not unordered and left_kind != right_kind:
        return ""
    if not unordered:
        same = all(equal(a, b, question) for a, b in zip(left_parts, right_parts, strict=True))
        return "parts" if same else ""
    rest = list(right_parts)
    for part in left_parts:
        partner = next((other for other in rest if equal(part, other, question)), None)
        if partner is None:
            return ""
        rest.remove(partner)
    return "parts"


def _split(text: str) -> tuple[str, list[str]]:
    """The kind of brackets around a list ("" for none), and its parts at top level."""
    kind = ""
    if len(text) > 2 and text[0] in _PAIRS and text[-1] in ")]}":
        kind, text = text[0] + text[-1], text[1:-1]
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and (char == "," or text.startswith("and", at)):
            parts.append(text[start:at])
            start = at + (1 if char == "," else 3)
    parts.append(text[start:])
    return kind, [part for part in parts if part]


def canonical_math(answer: str) -> str:
    """A MATH answer as rows carry it: a plain number where it is rational, else its normalised text."""
    text = normalise(answer[:_MAX_ANSWER])
    value = evaluate(text.rstrip("%"))
    if isinstance(value, Fraction):
        return plain(value) + ("%" if text.endswith("%") else "")
    return text


def printed_answer(stdout: str) -> str:
    """The answer that a program printed: its last line, without a label, in LaTeX's spelling of powers."""
    lines = [line.strip() for line in stdout.split("\n") if line.strip()]
    if not lines or lines[-1] in ("None", "nan", "inf", "True", "False") or len(lines[-1]) > _MAX_ANSWER:
        return ""
    answer = math_answer(lines[-1], guess=False)[0] or lines[-1]
    if evaluate(answer) is None:
        answer = answer.replace("**", "^").replace("*", "")
    return answer
