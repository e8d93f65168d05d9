"""What a program that means no harm gets back."""

import pytest

from numsft.errors import UserError
from numsft.evaluation.sandbox import Outcome, isolation, run_programs
from numsft.evaluation.sandbox.process import exception_name

pytestmark = pytest.mark.skipif(isolation().level == "none", reason="this machine cannot isolate programs")


def run(program: str, **options) -> Outcome:
    return run_programs([program], workers=1, wall_seconds=30, **options)[0]


def test_what_a_program_prints_comes_back():
    outcome = run("import math\nprint(math.sqrt(16))")
    assert (outcome.stdout, outcome.error) == ("4.0\n", None)
    assert 0 < outcome.seconds < 30


@pytest.mark.parametrize(
    ("program", "stdout"),
    [
        ("from math import *\nprint(sqrt(9))", "3.0\n"),
        ("from fractions import Fraction\nprint(Fraction(1, 3) + Fraction(1, 6))", "1/2\n"),
        ("import itertools\nprint(len(list(itertools.permutations(range(4)))))", "24\n"),
        ("from datetime import date\nprint((date(2024, 3, 1) - date(2024, 2, 1)).days)", "29\n"),
        ("import numpy as np\nprint(np.linalg.solve([[2, 0], [0, 4]], [2, 8]))", "[1. 2.]\n"),
        ("from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 4, x))", "[-2, 2]\n"),
        ("print('größer ≥ 5')", "größer ≥ 5\n"),
        ("s = '''a\nb'''\nprint(len(s))", "3\n"),
        ("if __name__ == '__main__':\n    print(7)", "7\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(3))", "P(x=3)\n"),
        ("import sys\nprint(sys.argv[0] == __file__, len(sys.argv))", "True 1\n"),
        ("print(1)\nexit()", "1\n"),
        ("print(1)\nraise SystemExit", "1\n"),
        ("import tempfile\nwith tempfile.TemporaryFile() as f:\n    print(f.write(b'abc'))", "3\n"),
        ("from multiprocessing.dummy import Pool\nprint(Pool(4).map(abs, [-1, -2]))", "[1, 2]\n"),
    ],
)
def test_programs_of_the_usual_kinds_work(program, stdout):
    if "tempfile" in program and not isolation().parts["scratch"]:
        pytest.skip("no scratch folder of limited size on this machine")
    outcome = run(program)
    assert (outcome.stdout, outcome.error) == (stdout, None)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("class Mine(Exception): pass\nraise Mine('a\\nValueError: b')", "Mine"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('x')", "KeyError"),
        ("import sys\nsys.exit('ValueError: only a text')", "SystemExit"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("import decimal\ndecimal.Decimal('x')", "InvalidOperation"),
        ("from sympy import sympify\nsympify('1 +')", "SympifyError"),
        ("raise ValueError('x' * 300000)", "ValueError"),
        ("input()", "EOFError"),
        ("print(10**5000)", "ValueError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_an_exception_is_named_and_what_was_printed_before_is_kept(program, error):
    outcome = run(f"print(7)\n{program}")
    assert (outcome.stdout, outcome.error) == ("7\n", error)


@pytest.mark.parametrize(
    "program", ["print(1", "```python\nprint(1)\n```", "print(1)\nThe answer is 1.", "\0", "\ud800"]
)
def test_text_that_is_no_program_is_a_syntax_error(program):
    outcome = run(program)
    assert (outcome.stdout, outcome.error) == ("", "SyntaxError")


def test_an_empty_program_prints_nothing():
    assert (run("").stdout, run("").error) == ("", None)


def test_results_come_in_the_order_of_the_programs():
    programs = [f"import time\ntime.sleep({0.3 if n % 3 == 0 else 0})\nprint({n})" for n in range(9)]
    assert [o.stdout for o in run_programs(programs, workers=4, wall_seconds=30)] == [
        f"{n}\n" for n in range(9)
    ]


def test_no_programs_no_outcomes():
    assert run_programs([]) == []


def test_the_order_of_a_set_is_the_same_in_every_run():
    program = "print({'a', 'b', 'c', 'd', 'e', 'f'}, {int, str, float, None})"
    assert len({o.stdout for o in run_programs([program] * 5, wall_seconds=30)}) == 1


@pytest.mark.parametrize("name", ["wall_seconds", "cpu_seconds", "memory_mib", "output_bytes", "workers"])
def test_a_limit_of_nothing_is_refused(name):
    with pytest.raises(UserError, match=f"{name} is 0"):
        run_programs(["print(1)"], **{name: 0})


def test_the_class_is_read_from_the_last_traceback():
    first = 'Traceback (most recent call last):\n  File "a", line 1, in <module>\nKeyError: 1\n\nDuring\n\n'
    last = 'Traceback (most recent call last):\n  File "a", line 3, in <module>\n    x\n    ^\na.b.MyError\n'
    assert exception_name(first + last) == "MyError"
    assert exception_name("") == "SystemExit"
