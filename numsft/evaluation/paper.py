r"""The published rule book, bug for bug: how the DEL paper turns a model's text into an answer and judges it.

Facts are from the released evaluation (PolyU-VCLab/DEL, a fork of MAmmoTH2's math_eval); the code is
independent. Its hazards are kept: numbers lose exponents (`1e-5` is 1) and leading points (`.5` is 5),
trailing zeros are cut off `1e+20`, programs run inside a function, a choice without a letter becomes A, and
everything but MATH is compared as a string.

One thing differs. The published code calls `eval` on the model's text; here the same float comes out of
parsing it, see `trim_zeros` and `number_of`, and programs run in the sandbox, see `program_form`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from numsft.evaluation.arithmetic import evaluate
from numsft.evaluation.paper_math import boxed, strip_string

_TRIGGERS = ("The answer is:", "The answer is", "the answer is")
_CHOICE_TRIGGERS = ("####", "The answer is")
_CANDIDATE = re.compile(r"-?\d+/?\.?\d*")
_DECIMAL = re.compile(r"-?\d*\.?\d+")
_LETTER = re.compile(r"\b(A|B|C|D|E|F|G|H|I|J)\b")
_LETTERS = frozenset("ABCDEFGHIJ")
_FRACTION = re.compile(r"(-?)([0-9]+)/(\.?[0-9]+)")

_HARNESS = """\
import contextlib, io
def run(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {{"__name__": "code_utils"}}, {{}})
    return out.getvalue()
print(run({code!r}), end="")
"""


def is_program(text: str) -> bool:
    """Whether the text is run: it holds `print(` anywhere."""
    return "print(" in text


def program_form(text: str) -> str:
    """The program that reproduces the published executor when the sandbox runs it.

    The text up to "### Instruction" is indented by two spaces into a function, which is then called: a star
    import is a SyntaxError, and strings over several lines get longer. Output counts only if the program
    ends by itself: an exception, SystemExit or a time-out loses what was printed. `__name__` is not
    "__main__", so a guarded main function does not run.
    """
    lines = text.split("### Instruction")[0].split("\n")
    code = "def run_it():\n" + "".join(f"  {line}\n" for line in lines) + "run_it()"
    return _HARNESS.format(code=code)


def program_answer(stdout: str, error: str | None) -> str:
    """The text that stands for a program's output; empty output where it failed."""
    return "The answer is " + ("" if error is not None else stdout.strip("\n"))


def extract(benchmark: str, text: str) -> str:
    """The published extractor on an open benchmark: gsm8k, svamp, simuleq, math or math500.

    Returns:
        The answer as a string, "" where there is none.
    """
    math_rules = benchmark in ("math", "math500")
    triggers = (*_TRIGGERS, "####") if benchmark == "gsm8k" else _TRIGGERS
    segment, triggered = _segment(text, triggers)
    if math_rules:
        answer = _math_answer(segment, triggered)
    else:
        found = _CANDIDATE.findall(segment.replace(",", ""))
        answer = trim_zeros(found[0 if triggered else -1]) if found else ""
    return answer.rstrip(".").rstrip("/")


def extract_choice(text: str) -> tuple[str, bool]:
    """The published extractor on a multiple-choice benchmark.

    Returns:
        The letter, and whether the text gave one; the letter is A where it did not.
    """
    segment, triggered = _segment(text, _CHOICE_TRIGGERS)
    found = _LETTER.findall(segment.upper()) or [segment.strip().strip(".")]
    answer = found[0 if triggered else -1].rstrip(".").rstrip("/")
    return (answer, True) if answer in _LETTERS else ("A", False)


def _segment(text: str, triggers: Sequence[str]) -> tuple[str, bool]:
    """The part of the text that is searched, and whether a trigger opened it."""
    text = text.strip("\n")
    if any(text.count(trigger) > 1 for trigger in triggers):
        text = text.split("\n\n")[0]
    parts = re.split("|".join(map(re.escape, triggers)), text)
    return parts[-1].strip("\n").rstrip(".").rstrip("/").strip(" "), len(parts) > 1


def trim_zeros(candidate: str) -> str:
    """A candidate through a float and back, with the published loss of trailing zeros.

    `5.0` is `5`, `1/3` is `0.3333333333333333`, and 10**20 is `100.0`: its float prints as 1e+20, whose zero
    is cut off. A candidate that Python cannot read, such as `5/` or `1/0`, stays as it is.
    """
    try:
        value = float(candidate)
    except ValueError:
        quotient = _quotient(candidate)
        if quotient is None:
            return candidate
        value = quotient
    text = str(value).rstrip("0")
    return str(int(text[:-1])) if text.endswith(".") else str(float(text))


def _quotient(candidate: str) -> float | None:
    """What Python makes of `a/b`: true division of two literals, None where it raises."""
    match = _FRACTION.fullmatch(candidate)
    if match is None:
        return None
    sign, top, bottom = match.groups()
    # Python refuses leading zeros in a decimal integer, except in zero itself, and very long ones.
    if any(len(part.strip("0")) and part[0] == "0" for part in (top, bottom)) or len(candidate) > 4300:
        return None
    try:
        return int(sign + top) / (float(bottom) if bottom[0] == "." else int(bottom))
    except (ZeroDivisionError, OverflowError):
        return None


def _math_answer(segment: str, triggered: bool) -> str:
    if "boxed" in segment:
        answer = boxed(segment)
    elif triggered:
        answer = segment.split("=")[-1].strip()
        if re.match(r"[\d\.]+\s\D+$", answer):
            answer = answer.split(" ")[0]
    else:
        found = _DECIMAL.findall(segment)
        answer = found[-1] if found else ""
    return strip_string(answer)


def correct(answer: str, gold: str, gold_number: float | None = None) -> str:
    """How the answer matches the gold, or "" where it does not.

    Returns:
        "string" for equality without regard to case (or the letter option of a gold such as `(B)` found
        anywhere in the answer), "numeric_gold" where the gold carries a number, which only MATH's do: `round`
        equality for an integer, 4 % for a float.
    """
    if "\\text{" in answer:
        answer = answer.replace("\\text{", "").rstrip("}")
    if "\\text{" in gold:
        gold = gold.replace("\\text{", "").rstrip("}")
    if gold.lower() in ("(a)", "(b)", "(c)", "(d)", "(e)", "(f)"):
        return "string" if gold.lower() in answer.lower() else ""
    if answer.lower() == gold.lower():
        return "string"
    if gold_number is None:
        return ""
    value = number_of(answer)
    if value is None or math.isnan(value):
        return ""
    if isinstance(gold_number, int):
        same = math.isfinite(value) and round(value) == gold_number
    else:
        slack = abs(gold_number) * 0.04
        same = gold_number - slack <= value <= gold_number + slack
    return "numeric_gold" if same else ""


def number_of(answer: str) -> float | None:
    """The number of a MATH answer: π is 3.14, e is 2.718..., a percent sign divides by 100, units go.

    Stands in for latex2sympy followed by `eval`, and gives what they give for arithmetic on numerals;
    anything with a variable is None.
    """
    for old, new in (("$", ""), ("¥", ""), ("°C", ""), (" C", ""), ("°", "")):
        answer = answer.replace(old, new)
    try:
        return float(answer)
    except ValueError:
        value = evaluate(answer, pi=3.14, log_base_ten=False)
    try:
        return None if value is None else float(value)
    except OverflowError:
        return None
