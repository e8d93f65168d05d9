r"""Arithmetic on numerals, read without evaluating anything: `3/4`, `2\sqrt{3}`, `\frac{\pi}{2}`, `5!`.

Values stay exact (`Fraction`) as long as they are rational and become floats where a root, π or a function is
not. Variables, the imaginary unit and everything else make the text no arithmetic: the answer is None.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

Value = Fraction | float

_MAX_TEXT = 400
_MAX_DEPTH = 40
_MAX_BITS = 40_000
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4}(?![0-9A-Za-z]))?"
    r"|\.[0-9]+(?:[eE][+-]?[0-9]{1,4}(?![0-9A-Za-z]))?)"
    r"|(?P<name>\\?[A-Za-z]+|π)|(?P<operator>\*\*|[-+*/^(){}\[\]!%·×÷−–]))"
)
_TIMES = {"*", "\\cdot", "\\times", "·", "×"}
_DIVIDE = {"/", "\\div", "÷"}
_OPENING = {"(": ")", "{": "}", "[": "]"}
_FUNCTIONS = {
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "ln": math.log,
    "exp": math.exp,
}


class _NotArithmeticError(ValueError):
    """The text is no arithmetic on numerals, or too large."""


def evaluate(text: str, pi: Value = math.pi, e: Value = math.e, log_base_ten: bool = True) -> Value | None:
    """The value of a text that is arithmetic on numerals throughout, None for any other text.

    `pi` and `e` are what these names stand for; `log` is to base 10, or natural as Python's.
    """
    if not text.strip() or len(text) > _MAX_TEXT:
        return None
    names: dict[str, Value] = {"pi": pi, "π": pi, "e": e}
    try:
        parser = _Parser(_tokens(text), names, log_base_ten)
        value = parser.sum(0)
        if parser.peek() is not None:
            return None
    except (_NotArithmeticError, ArithmeticError, ValueError):
        return None
    return value if isinstance(value, Fraction) or math.isfinite(value) else None


def _tokens(text: str) -> list[str]:
    text = text.replace("\\left", "").replace("\\right", "").replace("\\!", "").replace("\\,", "")
    found: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _NotArithmeticError
        token = match[0].strip()
        # \frac12 and \sqrt12 take one digit at a time.
        if match["number"] and found and _takes_digits(found) and len(token) > 1:
            token = token[0]
            at = match.start("number") + 1
        else:
            at = match.end()
        found.append("-" if token in "−–" else token)
    return found


def _takes_digits(found: list[str]) -> bool:
    last = found[-1]
    if last in ("\\frac", "\\dfrac", "\\tfrac", "\\sqrt"):
        return True
    return len(found) > 1 and found[-2] in ("\\frac", "\\dfrac", "\\tfrac") and last.isdigit()


class _Parser:
    """Recursive descent over the tokens; `depth` bounds the recursion."""

    def __init__(self, tokens: list[str], names: dict[str, Value], log_base_ten: bool) -> None:
        self.tokens = tokens
        self.at = 0
        self.names = names
        self.log_base_ten = log_base_ten

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise _NotArithmeticError
        self.at += 1
        return token

    def sum(self, depth: int) -> Value:
        value = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            value = _bounded(value + sign * self.product(depth))
        return value

    def product(self, depth: int) -> Value:
        value = self.signed(depth)
        while (token := self.peek()) is not None:
            if token in _TIMES:
                self.take()
                value = _bounded(value * self.signed(depth))
            elif token in _DIVIDE:
                self.take()
                value = _bounded(value / self.signed(depth))
            elif token == "%":
                self.take()
                value = value / 100
            elif token in ("(", "{", "π") or (token[0] == "\\" and token[1:].isalpha()) or token == "sqrt":
                mixed = token in ("\\frac", "\\dfrac", "\\tfrac") and self.tokens[self.at - 1].isdigit()
                part = self.power(depth)
                value = _bounded(value + part if mixed and 0 < part < 1 else value * part)
            else:
                break
        return value

    def signed(self, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            raise _NotArithmeticError
        if self.peek() in ("+", "-"):
            return self.signed(depth + 1) if self.take() == "+" else -self.signed(depth + 1)
        return self.power(depth)

    def power(self, depth: int) -> Value:
        value = self.atom(depth)
        while self.peek() == "!":
            self.take()
            if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 200:
                raise _NotArithmeticError
            value = Fraction(math.factorial(int(value)))
        if self.peek() in ("^", "**"):
            self.take()
            exponent = self.signed(depth + 1)
            value = _power(value, exponent)
        return value

    def atom(self, depth: int) -> Value:
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return _bounded(Fraction(token.rstrip(".")))
        if token in _OPENING:
            value = self.sum(depth + 1)
            self.expect(_OPENING[token])
            return value
        name = token.lstrip("\\")
        if token in ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"):
            top = self.atom(depth + 1)
            return _bounded(top / self.atom(depth + 1))
        if name == "sqrt":
            index: Value = Fraction(2)
            if self.peek() == "[":
                index = self.atom(depth + 1)
            return _power(self.atom(depth + 1), 1 / index)
        if name in self.names:
            return self.names[name]
        if name == "log":
            value = float(self.atom(depth + 1))
            return math.log10(value) if self.log_base_ten else math.log(value)
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](float(self.atom(depth + 1)))
        raise _NotArithmeticError

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise _NotArithmeticError


def _bounded(value: Value) -> Value:
    if (
        isinstance(value, Fraction)
        and value.numerator.bit_length() + value.denominator.bit_length() > _MAX_BITS
    ):
        raise _NotArithmeticError
    return value


def _power(base: Value, exponent: Value) -> Value:
    """The power; exact for integer exponents and for roots that come out even."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = base.numerator.bit_length() + base.denominator.bit_length()
            if abs(exponent) * bits > _MAX_BITS:
                raise _NotArithmeticError
            return base ** int(exponent)
        if exponent == Fraction(1, 2) and base >= 0:
            top, bottom = math.isqrt(base.numerator), math.isqrt(base.denominator)
            if top * top == base.numerator and bottom * bottom == base.denominator:
                return Fraction(top, bottom)
    if base < 0 and isinstance(exponent, (float, Fraction)) and exponent != int(exponent):
        raise _NotArithmeticError
    return math.pow(base, exponent)
