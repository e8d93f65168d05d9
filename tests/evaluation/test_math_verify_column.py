"""math-verify as a second column: in a process of its own that is killed when it hangs."""

import time

from numsft.evaluation.math_verify_column import add_math_verify, math_verify


def test_equal_unequal_and_endless_pairs():
    start = time.monotonic()
    pairs = [("\\frac{1}{2}", "0.5"), ("2", "3"), ("9^{9^{9^{9^9}}}", "3"), ("x^2+1", "1+x^2"), ("", "1")]
    assert math_verify(pairs, seconds=5) == [True, False, None, True, False]
    assert time.monotonic() - start < 60


def test_the_column_is_added_to_math_rows_only():
    rows = [
        {"benchmark": "math", "extracted": "x^2+1", "gold": "1+x^2", "correct": False},
        {"benchmark": "gsm8k", "extracted": "5", "gold": "5", "correct": True},
    ]
    scored = add_math_verify(rows)
    assert scored[0] == rows[0] | {"math_verify": True}
    assert scored[1] == rows[1]
