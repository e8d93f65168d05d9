"""`TASKS`: the 41 representation × task combinations, each a way to draw operands and an exact answer.

Digit-wise tasks (`digit_max`, `digit_min`, `digit_add`) work place by place with a missing digit as 0 and
without a carry; their answer is written as a number, so without leading zeros. `get_digit` counts from 0 from
the left and, like `length`, passes over the point. `sig_fig` rounds half up and answers in scientific
notation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from numsft.evaluation.nupa import numbers as n

SHORT, LONG = (4, 8, 14, 20), (10, 20, 60, 100)  # longest length of the ranges S, M, L, XL

Draw = Callable[[Random, int, int], tuple[str, ...]]  # (rng, length, least length of the second operand)
Answer = Callable[..., str]


@dataclass(frozen=True)
class Task:
    """One combination.

    Attributes:
        representation: Integer, Float, Fraction or Scientific.
        name: The task without its representation, `add`.
        template: The prompt, with `{0}`, `{1}` for the operands.
        draw: Draws the operands, as written, for a length.
        answer: The operands, as written, to the answer.
        ranges: The longest length of each of the ranges S, M, L and XL.
        symmetric: The order of the operands does not change the answer.
        min_length: The shortest length at which the task exists.
    """

    representation: str
    name: str
    template: str
    draw: Draw
    answer: Answer
    ranges: tuple[int, int, int, int] = LONG
    symmetric: bool = False
    min_length: int = 1


def _integer(rng: Random, length: int) -> str:
    return str(n.draw_integer(rng, length))


def _pair(draw: Callable[[Random, int], str]) -> Draw:
    """Two operands, the longer of `length`, in random order."""

    def draw_pair(rng: Random, length: int, least: int) -> tuple[str, ...]:
        pair = [draw(rng, length), draw(rng, rng.randint(least, length))]
        rng.shuffle(pair)
        return tuple(pair)

    return draw_pair


def _scientific_pair(gap: int) -> Draw:
    def draw_pair(rng: Random, length: int, least: int) -> tuple[str, ...]:
        first = rng.randint(0, 99)
        second = rng.randint(max(0, first - gap), min(99, first + gap))
        lengths = [length, rng.randint(least, length)]
        rng.shuffle(lengths)
        return n.draw_scientific(rng, lengths[0], first), n.draw_scientific(rng, lengths[1], second)

    return draw_pair


def _descending(draw_pair: Draw) -> Draw:
    """The larger first and never two equal ones: the difference is positive."""

    def draw(rng: Random, length: int, least: int) -> tuple[str, ...]:
        while True:
            pair = draw_pair(rng, length, least)
            if n.value_of(pair[0]) != n.value_of(pair[1]):
                return tuple(sorted(pair, key=n.value_of, reverse=True))

    return draw


def _dividend(divisor_digits: Callable[[int], int]) -> Draw:
    """A dividend of `length` digits and a divisor from 1 on with at most `divisor_digits(length)`."""

    def draw(rng: Random, length: int, least: int) -> tuple[str, ...]:
        most = min(length, divisor_digits(length))
        divisor = n.draw_integer(rng, rng.randint(min(least, most), most))
        return _integer(rng, length), str(max(1, divisor))

    return draw


def _one(draw: Callable[[Random, int], str]) -> Draw:
    return lambda rng, length, least: (draw(rng, length),)


def _with(draw: Callable[[Random, int], str], extra: Callable[[Random, str], int]) -> Draw:
    """A number and a small parameter that depends on it: a position, a digit, a count of figures."""

    def draw_both(rng: Random, length: int, least: int) -> tuple[str, ...]:
        number = draw(rng, length)
        return number, str(extra(rng, number))

    return draw_both


def _digits(text: str) -> str:
    return text.replace(".", "")


def _position(rng: Random, number: str) -> int:
    return rng.randrange(len(_digits(number)))


def _figures(rng: Random, number: str) -> int:
    return rng.randint(2, max(2, len(_digits(number).lstrip("0"))))


def _digit_wise(combine: Callable[[int, int], int]) -> Answer:
    def answer(a: str, b: str) -> str:
        (a_whole, _, a_rest), (b_whole, _, b_rest) = a.partition("."), b.partition(".")
        width, decimals = max(len(a_whole), len(b_whole)), max(len(a_rest), len(b_rest))
        pairs = zip(
            a_whole.zfill(width) + a_rest.ljust(decimals, "0"),
            b_whole.zfill(width) + b_rest.ljust(decimals, "0"),
            strict=True,
        )
        digits = int("".join(str(combine(int(x), int(y))) for x, y in pairs))
        return n.write_float(Fraction(digits, 10**decimals)) if decimals else str(digits)

    return answer


def _calculate(operate: Callable[[Fraction, Fraction], Fraction], write: Callable[[Fraction], str]) -> Answer:
    return lambda a, b: write(operate(n.value_of(a), n.value_of(b)))


def _pick(choose: Callable[..., str]) -> Answer:
    return lambda a, b: choose(a, b, key=n.value_of)


def _write_integer(value: Fraction) -> str:
    return str(int(value))


def _scientific_any(rng: Random, length: int) -> str:
    return n.draw_scientific(rng, length, rng.randint(0, 99))


def _build() -> dict[str, Task]:
    tasks: dict[str, Task] = {}

    def add(
        representation: str, name: str, template: str, draw: Draw, answer: Answer, **rest: object
    ) -> None:
        key = f"{representation.lower()}_{name}"
        tasks[key] = Task(representation, name, template, draw, answer, **rest)  # type: ignore[arg-type]

    writers = {
        "Integer": (_pair(_integer), _write_integer),
        "Float": (_pair(n.draw_float), n.write_float),
        "Fraction": (_pair(n.draw_fraction), n.write_fraction),
        "Scientific": (_scientific_pair(5), n.write_scientific),
    }
    for kind, (pair, write) in writers.items():
        product_pair = _scientific_pair(99) if kind == "Scientific" else pair
        compared = SHORT if kind == "Fraction" else LONG
        plus, minus, times = Fraction.__add__, Fraction.__sub__, Fraction.__mul__
        add(kind, "add", "{0} + {1} = ", pair, _calculate(plus, write), ranges=SHORT, symmetric=True)
        add(kind, "subtract", "{0} - {1} = ", _descending(pair), _calculate(minus, write), ranges=SHORT)
        add(
            kind,
            "multiply",
            "{0} * {1} = ",
            product_pair,
            _calculate(times, write),
            ranges=SHORT,
            symmetric=True,
        )
        add(kind, "max", "max({0}, {1}) = ", product_pair, _pick(max), ranges=compared, symmetric=True)
        add(kind, "min", "min({0}, {1}) = ", product_pair, _pick(min), ranges=compared, symmetric=True)

    for kind, one in {"Integer": _integer, "Float": n.draw_float}.items():
        for name, combine in _DIGIT_WISE.items():
            add(kind, name, name + "({0}, {1}) = ", _pair(one), _digit_wise(combine), symmetric=True)
        add(
            kind,
            "get_digit",
            "get_digit({0}, {1}) = ",
            _with(one, _position),
            lambda a, i: _digits(a)[int(i)],
        )
        add(kind, "length", "length({0}) = ", _one(one), lambda a: str(len(_digits(a))))
        add(
            kind,
            "to_scient",
            "to_scient({0}) = ",
            _one(_nonzero(one)),
            lambda a: n.write_scientific(n.value_of(a)),
        )
        add(
            kind,
            "sig_fig",
            "sig_fig({0}, {1}) = ",
            _with(_nonzero(one), _figures),
            lambda a, figures: n.write_rounded(n.value_of(a), int(figures)),
            min_length=2,
        )
    add(
        "Integer",
        "count",
        "count({0}, {1}) = ",
        _with(_integer, lambda rng, _: rng.randrange(10)),
        lambda a, digit: str(a.count(digit)),
    )

    whole, mod_digits = _dividend(lambda length: length), _dividend(lambda length: int(0.7 * length) + 1)
    true_division = _calculate(Fraction.__truediv__, n.write_fraction)
    add("Integer", "truediv", "{0} / {1} = ", whole, true_division, ranges=SHORT)
    add("Integer", "floordiv", "{0} // {1} = ", whole, lambda a, b: str(int(a) // int(b)), ranges=SHORT)
    add("Integer", "mod", "{0} % {1} = ", mod_digits, lambda a, b: str(int(a) % int(b)), ranges=SHORT)
    add("Fraction", "truediv", "({0}) / ({1}) = ", _pair(n.draw_fraction), true_division, ranges=SHORT)

    def plain(a: str) -> str:
        return n.write_float(n.value_of(a))

    add("Fraction", "to_float", "to_float({0}) = ", _one(n.draw_terminating_fraction), plain, ranges=SHORT)
    add("Scientific", "to_float", "to_float({0}) = ", _one(_scientific_any), plain)
    return tasks


def _nonzero(draw: Callable[[Random, int], str]) -> Callable[[Random, int], str]:
    def drawn(rng: Random, length: int) -> str:
        while True:
            number = draw(rng, length)
            if n.value_of(number):
                return number

    return drawn


_DIGIT_WISE: dict[str, Callable[[int, int], int]] = {
    "digit_max": max,
    "digit_min": min,
    "digit_add": lambda x, y: (x + y) % 10,
}

TASKS = _build()
