"""The strict rules: where an answer stands, what matches a gold, programs in completions, MATH text."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numsft.evaluation.arithmetic import evaluate
from numsft.evaluation.choices import option_count, strict_choice
from numsft.evaluation.math_text import canonical_math, equal, math_answer, printed_answer
from numsft.evaluation.numbers import Number, canonical, parse_number
from numsft.evaluation.programs import find_program, looks_like_code, own_answer, parses
from numsft.evaluation.strict import boxes, from_output, from_text, match_number


def answer(text, **options):
    found = from_text(text, **options)
    return (canonical(found.number) if found.number else "", found.source)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 18.", ("18", "trigger")),
        ("The answer is: $18$.", ("18", "trigger")),
        ("The answer is:\n\n**18**", ("18", "trigger")),
        ("The answer is\n\\[\n18\n\\]", ("18", "trigger")),
        ("**Answer:** 18 dollars", ("18", "trigger")),
        ("The answer to the question is 18", ("18", "trigger")),
        ("The answer is x = 18.", ("18", "trigger")),
        ("The answer is 16 - 3 - 4 + 9 = 18 eggs, in 2 days", ("18", "trigger")),
        ("It makes 9 * 2 = 18.\n#### 18", ("18", "trigger")),
        ("The answer is 18. I hope the answer is clear.", ("18", "trigger")),
        ("Thus \\boxed{18}.", ("18", "boxed")),
        ("\\boxed{x = 18}, not 20", ("18", "boxed")),
        ("She makes 9 * 2 = $18.", ("18", "last_number")),
        ("x = 18", ("18", "last_number")),
        ("It is cut off: \\boxed{18", ("18", "last_number")),
        ("Answer: Janet sells 16 - 7 = 9 eggs. She makes 9 * 2 = 18", ("18", "last_number")),
        ("Answer: 16 - 7 = 9. Then 9 * 2 = 18", ("18", "last_number")),
        ("Answer: x = 18 in 2 days", ("18", "trigger")),
        ("I cannot tell.", ("", "")),
        ("eggs = 16\nleft = eggs - 7\ntotal = left * 2", ("", "")),
        ("def f():\n    return 18", ("", "")),
    ],
)
def test_where_the_answer_of_a_text_stands(text, expected):
    assert answer(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = \\boxed{15} and y = \\boxed{9}",
        "\\boxed{x = 15, y = 9}",
        "The answer is 15 and 9.",
        "The answer is x = 15, y = 9",
        "So x = 15 and y = 9",
    ],
)
def test_a_system_is_answered_by_its_first_unknown_and_names_all(text):
    found = from_text(text, first=True)
    assert found.number.value == 15
    assert [number.value for number in found.solutions] == [15, 9]


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("18\n", "18"),
        ("step 1: 9\n18\n", "18"),
        ("Janet makes $18 a day", "18"),
        ("The answer is 5 apples out of 10", "5"),
        ("Total for 3 people: 45", "45"),
        ("[18]", "18"),
        ("{x: 18}", "18"),
        ("[Fraction(1, 3)]", "1/3"),
        ("18\nDone.\n", "18"),
        ("None", ""),
        ("nan", ""),
        ("", ""),
    ],
)
def test_the_answer_of_a_program_s_output(stdout, expected):
    found = from_output(stdout)
    assert (canonical(found.number) if found.number else "") == expected


def test_boxes_may_nest_and_a_cut_off_one_is_none():
    assert boxes("\\boxed{\\frac{1}{2}} and \\boxed{3}") == ["\\frac{1}{2}", "3"]
    assert boxes("\\boxed 7$ and \\fbox{8}") == ["7", "8"]
    assert boxes("\\boxed{1{2") == []


@given(st.integers(-(10**9), 10**9), st.integers(0, 3000))
def test_an_integer_gold_takes_one_millionth(gold, offset):
    value = Fraction(gold) + Fraction(offset, 10**9) * max(1, abs(gold))
    assert bool(match_number(Number(value), parse_number(str(gold)))) == (offset <= 1000)


@pytest.mark.parametrize(
    ("gold", "text", "how"),
    [
        ("583.3333", "583.33335", "tolerance"),
        ("0.6667", "0.66666", "rounded"),
        ("0.6667", "0.66664", ""),
        ("0.45", "0.455", "rounded"),
        ("0.45", "0.4551", ""),
        ("0.5", "0.5000004", "tolerance"),
        ("0.5", "0.54", ""),
        ("2.50", "2.5", "exact"),
        ("-3", "3", ""),
        ("0", "0.0000005", "tolerance"),
    ],
)
def test_a_decimal_gold_is_a_rounded_one(gold, text, how):
    assert match_number(parse_number(text), parse_number(gold)) == how


@pytest.mark.parametrize(
    ("question", "gold", "text", "right"),
    [
        ("The price was $5. What percentage is that?", "25", "25%", True),
        ("What are the odds that it rains?", "24", "24%", True),
        ("He got 20% off. How many apples did he buy?", "30", "30%", False),
        ("What share did he eat?", "0.25", "25%", True),
        ("What share did he eat?", "25%", "0.25", True),
        ("What share did he eat?", "25%", "25", False),
        ("What percent did he eat?", "25%", "25", True),
    ],
)
def test_percent_is_a_unit(question, gold, text, right):
    assert bool(match_number(parse_number(text), parse_number(gold), question)) == right


# Programs


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (" import math\nx = 3\nprint(x)", "import math\nx = 3\nprint(x)"),
        (" print(3)", "print(3)"),
        (" def f():\n   return 3\n print(f())", "def f():\n  return 3\nprint(f())"),
        ("```python\nprint(3)\n```\nIt prints 3.", "print(3)\n"),
        ("Sure!\n\nx = 3\nprint(x)\n\nThis prints 3.", "x = 3\nprint(x)\n"),
        ("print(3)\n\n### Instruction:\nWhat is 5?", "print(3)"),
        ("print(3)\r\nprint(4)", "print(3)\nprint(4)"),
        ("```text\nprint(3)\n```\n```python\nprint(4)\n```", "print(4)\n"),
        ("```python\nprint(3)", "print(3)"),
        ("I will print (later) a 3.", None),
        ("The answer is 3.", None),
        ("x = 3", None),
    ],
)
def test_the_program_of_a_completion(text, program):
    found = find_program(text)
    assert (found and found.strip()) == (program and program.strip())


def test_a_program_that_python_cannot_read_is_still_run():
    assert find_program("import math\nprint(3") == "import math\nprint(3"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 15_000 + "print(1)",
        "-" * 19_000 + "1\nprint(1)",
        "print(1)" + "[" * 150 + "]" * 150,
        "not " * 4000 + "print(1)",
        "print(1)\0",
        "x = 1\n" * 3000 + "print(x",
        "lambda: " * 2000 + "print(1)",
        "1 if " * 3000 + "print(1)",
        "a" + ".b" * 9000 + "\nprint(1)",
        "print(1)" + "**-1" * 4000,
        "```\n" * 4000 + "print(1)",
    ],
)
def test_hostile_text_neither_stops_nor_holds_the_search(text):
    start = time.process_time()
    find_program(text)
    parses(text)
    from_text(text)
    assert time.process_time() - start < 10


def test_prose_is_not_code_and_own_answer_ends_before_the_next_question():
    assert looks_like_code("x = 3\ny = x * 5")
    assert not looks_like_code("She eats 3 eggs.\nx = 3")
    assert not looks_like_code("Dora = 3 insects\nDavid = 18 / 2 = 9 insects\nLily = 9 + 7 = 16 insects")
    assert own_answer("It is 3.\nQuestion: what is 5?") == "It is 3.\n"


# Multiple choice


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("(b)", "B"),
        ("Option D", "D"),
        ("**Answer: B**", "B"),
        ("$\\textbf{(C)}$", "C"),
        ("\\boxed{\\text{(C)}}", "C"),
        ("The answer is 5 (C)", "C"),
        ("The answer is C: 12", "C"),
        ("the answer is A train", ""),
        ("f(A) = 3", ""),
        ("(A) 5 (B) 6 (C) 7", ""),
        ("The answer is (E).", ""),
        ("x-A", ""),
        ("", ""),
    ],
)
def test_a_letter_counts_only_where_it_is_marked(text, letter):
    assert strict_choice(text, 4).letter == letter


def test_options_are_counted_from_the_question():
    assert option_count("Which (A)?\nAnswer Choices: (A) 1 (B) 2 (C) 3") == 3
    assert option_count("No options") == 0


# MATH


@pytest.mark.parametrize(
    ("answer_text", "gold"),
    [
        ("0.5", "\\frac{1}{2}"),
        ("\\dfrac12", "\\frac{1}{2}"),
        ("1/2", "\\frac{1}{2}"),
        ("-\\frac{1}{2}", "\\frac{-1}{2}"),
        ("1000", "1{,}000"),
        ("1,000", "1,\\!000"),
        ("x = 5", "5"),
        ("5\\text{ cm}", "5"),
        ("90", "90^\\circ"),
        ("\\$5.00", "5"),
        (".5", "0.5"),
        ("\\sqrt3", "\\sqrt{3}"),
        ("1.7320508075688772", "\\sqrt{3}"),
        ("2*sqrt(3)", "2\\sqrt{3}"),
        ("pi/4", "\\frac{\\pi}{4}"),
        ("0.3333333333333333", "\\frac{1}{3}"),
        ("\\text{evelyn}", "\\text{Evelyn}"),
        ("(B)", "\\text{(B)}"),
        ("B", "\\text{(B)}"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}{2})"),
        ("(3, pi/2)", "\\left( 3, \\frac{\\pi}{2} \\right)"),
        ("3, 1, 2", "1,2,3"),
        ("\\{2,1\\}", "\\{1, 2\\}"),
        ("[0, 0.5)", "[0,\\frac{1}{2})"),
        ("x \\in [1,2]", "[1,2]"),
        ("1011_{2}", "1011_2"),
        ("\\frac{7}{5} + \\frac{1}{5} i", "\\frac{7}{5} + \\frac{1}{5} i."),
    ],
)
def test_math_answers_that_are_equal(answer_text, gold):
    assert equal(answer_text, gold)


@pytest.mark.parametrize(
    ("answer_text", "gold"),
    [
        ("2.4", "2"),
        ("1", "\\frac{4036082}{4036081}"),
        ("(1,2)", "[1,2]"),
        ("(2,1)", "(1,2)"),
        ("1,2", "1,2,3"),
        ("3.14", "\\pi"),
        ("x", "y"),
        ("x+1", "x-1"),
        ("", "5"),
        ("50", "0.5"),
        ("1.41", "\\sqrt{2}"),
        ("12_5", "12_6"),
        ("9**9**9**9", "1"),
        ("1,1", "1,2"),
        ("(((((", ")))))"),
    ],
)
def test_math_answers_that_are_not(answer_text, gold):
    assert not equal(answer_text, gold)


def test_percent_in_math_is_a_unit():
    assert equal("50\\%", "50", "What percent is it?")
    assert equal("50", "50\\%", "What percent is it?")
    assert not equal("50\\%", "50", "How many are there?")
    assert equal("0.5", "50\\%", "How much of it is there?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so $\\boxed{\\frac{1}{2}}$", ("\\frac{1}{2}", "boxed")),
        ("The answer is $x = \\frac12$.", ("x = \\frac12", "trigger")),
        ("Hence $y = 3$.", ("3", "last_number")),
        ("It is 7.", ("7", "last_number")),
        ("No.", ("", "")),
    ],
)
def test_where_a_math_answer_stands(text, expected):
    assert math_answer(text) == expected


def test_what_a_math_program_prints_is_read_as_mathematics():
    assert printed_answer("x = 3\nThe answer is 5\n") == "5"
    assert printed_answer("x**2 + 2*x\n") == "x^2 + 2x"
    assert printed_answer("None\n") == ""
    assert canonical_math("\\frac{3}{4}") == "0.75"
    assert canonical_math("x = \\sqrt3") == "\\sqrt{3}"


# Arithmetic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3/4/5", Fraction(3, 20)),
        ("2^10", 1024),
        ("-2^2", -4),
        ("\\frac12", Fraction(1, 2)),
        ("5!", 120),
        ("50%", Fraction(1, 2)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("2\\frac{4}{2}", 4),
        ("\\sqrt{16}", 4),
        ("\\sqrt{\\frac{1}{4}}", Fraction(1, 2)),
        ("2(3+4)", 14),
        ("0.1+0.2", Fraction(3, 10)),
        ("3\\cdot 10^5", 300_000),
    ],
)
def test_arithmetic_is_exact(text, value):
    assert evaluate(text) == value
    assert isinstance(evaluate(text), Fraction)


@pytest.mark.parametrize(
    "text",
    ["x", "3i", "1/0", "9**9**9", "5 6", "(", "", "(" * 200 + "1", "-" * 300 + "1", "200!!!", "sqrt(-1)"],
)
def test_what_is_no_arithmetic_gives_none(text):
    assert evaluate(text) is None
