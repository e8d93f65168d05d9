r"""Numbers in text: each common way of writing one is read back exactly; nothing else passes for one."""

import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numsft.evaluation.numbers import canonical, find_numbers, parse_number, plain


def thousands(text):
    whole, point, decimals = text.lstrip("-").partition(".")
    return ("-" if text.startswith("-") else "") + f"{int(whole):,}" + point + decimals


def scientific(text, form):
    mantissa, exponent = f"{Decimal(text):e}".split("e")
    return form.format(mantissa=mantissa, exponent=int(exponent))


def sign_first(text, symbol):
    return "-" + symbol + text[1:] if text.startswith("-") else symbol + text


# Ways to write a decimal number that is given as plain text such as "-1234.5".
DECIMAL_FORMS = {
    "plain": lambda x: x,
    "plus": lambda x: x if x.startswith("-") else "+" + x,
    "unicode minus": lambda x: x.replace("-", "−"),
    "en dash as minus": lambda x: x.replace("-", "–"),
    "spaced minus after equals": lambda x: f"x = {x.replace('-', '- ')}",
    "leading zeros": lambda x: x.replace("-", "-00") if x.startswith("-") else "00" + x,
    "trailing zeros": lambda x: x + ("00" if "." in x else ".00"),
    "trailing point": lambda x: x + ".",
    "sentence": lambda x: f"It is {x}.",
    "thousands": thousands,
    "LaTeX thousands": lambda x: thousands(x).replace(",", "{,}"),
    "thin-space thousands": lambda x: thousands(x).replace(",", "\u202f"),
    "underscores": lambda x: thousands(x).replace(",", "_"),
    "dollar": lambda x: sign_first(x, "$"),
    "dollar before the sign": lambda x: "$" + x,
    "dollar and space": lambda x: "$ " + x,
    "escaped dollar": lambda x: "\\$" + x,
    "escaped dollar, thousands": lambda x: "\\$" + thousands(x),
    "euro": lambda x: sign_first(x, "€"),
    "euro behind": lambda x: x + "€",
    "pound": lambda x: sign_first(x, "£"),
    "USD": lambda x: "USD " + x,
    "bold": lambda x: f"**{x}**",
    "italic": lambda x: f"*{x}*",
    "code": lambda x: f"`{x}`",
    "boxed": lambda x: f"\\boxed{{{x}}}",
    "boxed with text": lambda x: f"\\boxed{{{x} \\text{{ cm}}}}",
    "inline mathematics": lambda x: f"${x}$",
    "mathematics in parentheses": lambda x: f"\\({x}\\)",
    "parentheses": lambda x: f"({x})",
    "brackets, as a Python list": lambda x: f"[{x}]",
    "quoted": lambda x: f'"{x}"',
    "label": lambda x: f"x = {x}",
    "tight label": lambda x: f"x={x}",
    "indexed label": lambda x: f"x_1 = {x}",
    "colon": lambda x: f"Total: {x}",
    "answer": lambda x: f"The answer is {x}.",
    "numpy": lambda x: f"np.float64({x})",
    "sympy dict": lambda x: f"{{x: {x}}}",
    "Decimal": lambda x: f"Decimal('{x}')",
    "unit": lambda x: f"{x} apples",
    "unit without space": lambda x: f"{x}kg",
    "power of a unit": lambda x: f"{x} cm^2",
    "degree": lambda x: f"{x}°",
    "LaTeX degree": lambda x: f"{x}^\\circ",
    "LaTeX degree in braces": lambda x: f"{x}^{{\\circ}}",
    "per": lambda x: f"{x}/hour",
    "hyphened": lambda x: f"a {x}-year bond",
    "spaces and line ends": lambda x: f"  {x}\n",
    "exponent": lambda x: scientific(x, "{mantissa}e{exponent}"),
    "signed exponent": lambda x: scientific(x, "{mantissa}E{exponent:+03d}"),
    "times ten to the": lambda x: scientific(x, "{mantissa} × 10^{exponent}"),
    "LaTeX scientific": lambda x: scientific(x, "${mantissa} \\times 10^{{{exponent}}}$"),
    "Python scientific": lambda x: scientific(x, "{mantissa}*10**{exponent}"),
}
FRACTION_FORMS = {
    "slash": lambda p, q: f"{p}/{q}",
    "spaced slash": lambda p, q: f"{p} / {q}",
    "fraction slash": lambda p, q: f"{p}⁄{q}",
    "frac": lambda p, q: f"\\frac{{{p}}}{{{q}}}",
    "dfrac": lambda p, q: f"\\dfrac{{{p}}}{{{q}}}",
    "tfrac in mathematics": lambda p, q: f"$\\tfrac{{{p}}}{{{q}}}$",
    "minus before frac": lambda p, q: f"{'-' * (p < 0)}\\frac{{{abs(p)}}}{{{q}}}",
    "Python Fraction": lambda p, q: f"[Fraction({p}, {q})]",
    "boxed": lambda p, q: f"\\boxed{{\\frac{{{p}}}{{{q}}}}}",
    "label": lambda p, q: f"x = {p}/{q}",
    "unit": lambda p, q: f"{p}/{q} of a cup",
}
MIXED_FORMS = {
    "space": lambda w, p, q: f"{w} {p}/{q}",
    "frac": lambda w, p, q: f"{w}\\frac{{{p}}}{{{q}}}",
    "spaced frac": lambda w, p, q: f"{w} \\frac{{{p}}}{{{q}}}",
    "unit": lambda w, p, q: f"{w} {p}/{q} cups",
}
PERCENT_FORMS = ("{}%", "{} %", "{}\\%", "{} percent", "{} per cent", "${}\\%$", "**{}%**", "x = {}%", "{}％")

decimals = st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False, places=4).map(
    lambda value: plain(Fraction(value))
)
integers = st.integers(-(10**12), 10**12).map(str)


def test_at_least_thirty_ways_of_writing_a_number_are_covered():
    assert len(DECIMAL_FORMS) >= 30


@pytest.mark.parametrize("form", DECIMAL_FORMS)
@given(text=st.one_of(decimals, integers))
def test_a_number_is_read_back_exactly(form, text):
    written = DECIMAL_FORMS[form](text)
    number = parse_number(written)
    assert number is not None, written
    assert number.value == Fraction(text), written
    assert not number.percent


@pytest.mark.parametrize("form", FRACTION_FORMS)
@given(top=st.integers(-999, 999), bottom=st.integers(1, 999))
def test_a_fraction_is_read_back_exactly(form, top, bottom):
    written = FRACTION_FORMS[form](top, bottom)
    assert parse_number(written).value == Fraction(top, bottom), written


@pytest.mark.parametrize("form", MIXED_FORMS)
@given(whole=st.integers(1, 999), top=st.integers(1, 50), more=st.integers(1, 50), negative=st.booleans())
def test_a_mixed_number_is_read_back_exactly(form, whole, top, more, negative):
    written = "-" * negative + MIXED_FORMS[form](whole, top, top + more)
    value = whole + Fraction(top, top + more)
    assert parse_number(written).value == (-value if negative else value), written


@pytest.mark.parametrize("form", PERCENT_FORMS)
@given(text=st.one_of(decimals, integers))
def test_a_percent_sign_is_kept_as_a_flag(form, text):
    number = parse_number(form.format(text))
    assert number.percent
    assert number.value == Fraction(text)
    assert number.amount == Fraction(text) / 100
    assert canonical(number) == plain(Fraction(text)) + "%"


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=10**4))
def test_canonical_text_is_read_back_exactly(value):
    assert parse_number(plain(value)).value == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_prints_of_a_float_is_read_back_exactly(value):
    assert parse_number(str(value)).value == Fraction(str(value))
    assert float(parse_number(repr(value)).value) == value


@given(st.lists(st.integers(-999, 999), min_size=2, max_size=5))
def test_several_numbers_are_several(values):
    for separator in (", ", " and ", "; ", "\n", " "):
        text = separator.join(map(str, values))
        assert [number.value for number in find_numbers(text)] == values
        assert parse_number(text) is None


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_decimal_comma_is_not_one(whole, part):
    assert parse_number(f"{whole},{part:02d}") is None
    assert [number.value for number in find_numbers(f"{whole},{part:02d}")] == [whole, part]


@pytest.mark.parametrize(
    "text",
    [
        "10:30",
        "3/4/5",
        "3/4/2025",
        "5-7",
        "5–7",
        "$5-$7",
        "20%-30%",
        "1.2.3",
        "2nd",
        "x_1",
        "x^2",
        "float64",
        "H2O",
        "3/0",
        "1e999999999",
        "9" * 5000,
        "0x1F",
        "2j",
        "3-1/2",
        "",
        "none",
        "nan",
        "1,2345",
    ],
)
def test_what_is_not_one_number_gives_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("½", "1/2"),
        ("1½", "3/2"),
        ("2**10", "1024"),
        ("10^{20}", str(10**20)),
        ("3×10⁵", "300000"),
        ("5 million", "5000000"),
        ("$2.5 billion", "2500000000"),
        ("\\frac12", "1/2"),
        ("-\\frac{3}{4}", "-3/4"),
        (".5", "1/2"),
        ("-.5", "-1/2"),
        ("Rs.5", "5"),
        ("- 5", "-5"),
        ("2^{-3}", "1/8"),
        ("1,\\!000", "1000"),
    ],
)
def test_special_spellings(text, value):
    assert parse_number(text).value == Fraction(value)


def test_a_binary_minus_is_no_sign_and_a_list_item_is_not_negative():
    assert [number.value for number in find_numbers("16 - 3 - 4 = 9")] == [16, 3, 4, 9]
    assert [number.value for number in find_numbers("x-5")] == [5]
    assert [number.value for number in find_numbers("We have\n- 5 apples\n- 6 pears")] == [5, 6]
    assert [number.value for number in find_numbers("5 -3")] == [5, -3]


def test_decimals_span_and_text_are_those_written():
    number = find_numbers("costs -$1,234.50 today")[0]
    assert (number.decimals, number.text) == (2, "-$1,234.50")
    assert "costs -$1,234.50 today"[slice(*number.span)] == "-$1,234.50"
    assert find_numbers("x = - 5")[0].text == "- 5"


@pytest.mark.parametrize(
    "unit",
    [
        "1,",
        ".",
        "1-",
        "9",
        "1,111,",
        "_{",
        "^ ",
        "-",
        "5   /",
        "1:",
        "1/",
        "1.1",
        "\\frac{",
        "1 1/",
        "= - 5 ",
    ],
)
def test_hostile_text_takes_no_time(unit):
    text = unit * (60_000 // len(unit))
    start = time.process_time()
    find_numbers(text)
    assert time.process_time() - start < 5
