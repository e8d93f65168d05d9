import json
import math
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numsft.evaluation.metrics import ln1p, ln_eps, log10p1, numeric_columns, read_pair, read_value

GOLDS_AND_PREDICTIONS = [
    ("18", "18"),
    ("120", "20"),
    ("5", ""),
    ("-3", "3"),
    ("12.05", "12"),
    ("40000", "4"),
]


def columns_of(pairs, **options):
    return numeric_columns([read_pair(gold, found, False) for gold, found in pairs], **options)


def mean(column):
    return float(np.nanmean(column)), int((~np.isnan(column)).sum())


@pytest.mark.parametrize(
    ("place", "mae", "acc", "n"),
    [
        ("0", 4 / 5, 4 / 5, 5),
        ("1", 0, 3 / 4, 4),  # the tens of 40000 and of "4" are both 0, but "4" has none
        ("2", 1 / 2, 0, 2),
        ("3", 0, 0, 1),
        ("4", 4, 0, 1),
        ("-1", 0, 0, 1),  # "12" does not write the 0 of 12.05
        ("-2", 5, 0, 1),
    ],
)
def test_places_by_hand(place, mae, acc, n):
    columns = columns_of(GOLDS_AND_PREDICTIONS)
    assert mean(columns[f"mae {place}"]) == (pytest.approx(mae), n)
    assert mean(columns[f"acc {place}"]) == (pytest.approx(acc), n)


def test_log_mae_sign_and_length_by_hand():
    columns = columns_of(GOLDS_AND_PREDICTIONS)
    ln = [0, math.log(6), 2 * math.log(3), math.log(12.05 / 12), 4 * math.log(10)]
    assert mean(columns["ln_eps"]) == (pytest.approx(sum(ln) / 5, abs=1e-8), 5)
    ln1 = [0, math.log(121 / 21), 2 * math.log(4), math.log(13.05 / 13), math.log(40001 / 5)]
    assert mean(columns["ln1p"]) == (pytest.approx(sum(ln1) / 5), 5)
    assert mean(columns["log10p1"]) == (pytest.approx(sum(ln1) / 5 / math.log(10)), 5)
    assert mean(columns["sign"]) == (pytest.approx(4 / 5), 5)
    assert mean(columns["length"]) == (pytest.approx(3 / 5), 5)


def test_in_the_worst_case_an_unparsed_answer_is_0_in_errors_and_wrong_in_accuracies():
    columns = columns_of([*GOLDS_AND_PREDICTIONS, ("0", "no number")], worst=True)
    assert mean(columns["mae 0"]) == (pytest.approx((4 + 5) / 7), 7)
    assert mean(columns["acc 0"]) == (pytest.approx(4 / 7), 7)
    assert mean(columns["sign"]) == (pytest.approx(4 / 7), 7)
    assert mean(columns["length"]) == (pytest.approx(3 / 7), 7)
    assert columns["ln_eps"][2] == pytest.approx(math.log(5))


def test_union_places_count_extra_leading_digits():
    columns = columns_of([("20", "9020"), ("7", "7")])
    assert np.isnan(columns["mae 3"]).all()
    assert mean(columns["union_mae 3"]) == (9, 1)
    assert mean(columns["union_acc 2"]) == (0, 1)  # both digits are 0, but the gold has none there
    assert mean(columns["union_acc 0"]) == (1, 2)


def test_ntl_form_is_clipped_at_1e10_and_the_others_are_not():
    columns = columns_of([("1", "1" + "0" * 30)])
    assert columns["log10p1"][0] == pytest.approx(math.log10(1 + 1e10) - math.log10(2))
    assert columns["ln1p"][0] == pytest.approx(30 * math.log(10) - math.log(2))
    assert columns["ln_eps"][0] == pytest.approx(30 * math.log(10))


def test_small_numbers_have_the_sign_of_their_logarithm_in_ln_eps():
    # sgn(x) ln(|x| + 1e-8), as published: 0.1 is below 0, and 0 is 0 by a rule of its own.
    assert ln_eps(Fraction(1, 10)) == pytest.approx(math.log(0.1 + 1e-8))
    assert ln_eps(Fraction(-1, 10)) == pytest.approx(-math.log(0.1 + 1e-8))
    assert ln_eps(Fraction(0)) == 0 == ln1p(Fraction(0)) == log10p1(Fraction(0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-3.5", Fraction(-7, 2)),
        ("+.5", Fraction(1, 2)),
        ("42.", 42),
        ("1,234,567.8", Fraction(12345678, 10)),
        ("2/3", Fraction(2, 3)),
        ("-\\frac{2}{3}", Fraction(-2, 3)),
        ("\\dfrac{10}{4}", Fraction(5, 2)),
        ("1e-5", Fraction(1, 100000)),
        ("1.5E+3", 1500),
        ("−7", -7),
        ("25%", 25),
        ("25\\%", 25),
        ("007", 7),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert read_value(text).value == value


@pytest.mark.parametrize(
    "text",
    ["", None, "A", "12,34", "1 2", "x", "5 apples", "3/0", "1/2/3", "nan", "inf", "٣", "e5", ".", "1e99999", "--1"],
)
def test_what_is_no_number_is_not_read(text):
    assert read_value(text) is None


def test_a_binary_float_tail_is_read_as_written():
    # 0.1 + 0.2 as Python prints it: its first decimals are right, and no repr is taken of anything.
    columns = columns_of([("0.3", "0.30000000000000004")])
    assert mean(columns["acc -1"]) == (1, 1)
    assert columns["mae 0"][0] == 0


def test_a_gold_has_the_decimals_it_needs_and_endless_ones_have_none():
    columns = columns_of([("51.0", "51"), ("2/3", "0.6667"), ("1/4", "0.25")])
    assert mean(columns["acc -2"]) == (1, 1)
    assert mean(columns["acc 0"]) == (1, 3)
    assert "acc -3" not in columns


def test_a_percent_counts_as_written_unless_the_right_answer_was_its_hundredth():
    assert read_pair("25", "25%", True)[1].value == 25
    assert read_pair("0.25", "25%", False)[1].value == 25
    assert read_pair("0.25", "25%", True)[1].value == Fraction(1, 4)
    assert read_pair("x+1", "3", False) is None


def test_thousands_of_digits_are_no_problem():
    columns = columns_of([("7", "7" * 6000), ("7", "0." + "3" * 6000), ("7", "1e9999")])
    assert columns["mae 0"].tolist() == [0, 7, 7]
    assert columns["ln1p"][0] == pytest.approx(5999 * math.log(10) + math.log(7.777777) - math.log(8), rel=1e-6)
    assert np.isfinite(columns["ln_eps"]).all()


decimals = st.decimals(min_value=-(10**8), max_value=10**8, places=6)


@given(decimals)
def test_digits_are_those_of_the_decimal_text(number: Decimal):
    text = format(abs(number), "f")
    whole, _, rest = text.partition(".")
    value = read_value(format(number, "f"))
    assert [value.digit(i) for i in range(len(whole))] == [int(c) for c in reversed(whole)]
    assert [value.digit(-j - 1) for j in range(len(rest))] == [int(c) for c in rest]
    assert value.integer_digits == len(whole)
    assert value.decimals == len(rest.rstrip("0"))
    assert value.digit(len(whole)) == 0 and not value.has(len(whole))
    assert value.has(-len(rest)) and not value.has(-len(rest) - 1)


@given(st.lists(decimals, min_size=1, max_size=8))
def test_a_perfect_model_has_no_error_anywhere(numbers):
    columns = columns_of([(format(number, "f"), format(number, "f")) for number in numbers])
    for name, column in columns.items():
        there = column[~np.isnan(column)]
        assert (there == (1.0 if "acc" in name or name in ("sign", "length") else 0.0)).all(), name


@given(decimals, decimals)
def test_log_forms_are_odd_and_agree_with_floats(gold, found):
    for x in (gold, found):
        exact, approximate = Fraction(x), float(x)
        size = abs(approximate)
        assert ln_eps(-exact) == -ln_eps(exact)
        assert ln_eps(exact) == pytest.approx(math.copysign(1, x) * math.log(size + 1e-8) if x else 0, abs=1e-9)
        assert ln1p(exact) == pytest.approx(math.copysign(math.log1p(size), x), abs=1e-9)
    # Natural against common logarithm: why a log-MAE near 0.45 and one near 0.19 are the same model.
    columns = columns_of([(format(gold, "f"), format(found, "f"))])
    assert columns["ln1p"][0] == pytest.approx(columns["log10p1"][0] * math.log(10), abs=1e-9)


def gsm8k_golds():
    folder = os.environ.get("NUMSFT_DATA_DIR")
    if not folder:
        pytest.skip("NUMSFT_DATA_DIR is not set")
    lines = (Path(folder) / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["answer"].rsplit("#### ", 1)[1].replace(",", "") for line in lines]


def test_so_few_gsm8k_golds_have_high_digits_that_their_error_is_noise():
    columns = columns_of([(gold, gold) for gold in gsm8k_golds()])
    # Two golds are negative, -3 and -10; a sign is no digit.
    counts = [int((~np.isnan(columns[f"mae {place}"])).sum()) for place in range(5)]
    assert counts == [1319, 1066, 427, 131, 47]
    assert not any(name.startswith("mae -") for name in columns)


def test_of_the_simuleq_golds_64_have_decimals():
    folder = os.environ.get("NUMSFT_DATA_DIR")
    if not folder:
        pytest.skip("NUMSFT_DATA_DIR is not set")
    rows = json.loads((Path(folder) / "simuleq" / "simuleq.json").read_text(encoding="utf-8"))
    values = [read_value(row["answer"]) for row in rows]
    assert all(values) and len(values) == 514
    assert sum(value.decimals > 0 for value in values) == 64
    assert sum(value.decimals >= 4 for value in values) == 4
