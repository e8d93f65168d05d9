"""Judging a model on remapped items: paired accuracy, and which kind of error a wrong answer is."""

from fractions import Fraction

import pytest

from numsft.errors import UserError
from numsft.evaluation.remap import check_equations, classify_errors, mcnemar, remap_accuracy, wilson_interval


@pytest.mark.parametrize(
    ("text", "gold", "kind"),
    [
        ("16 - 3 - 4 = 9. Then 9 * 2 = 18. The answer is 18", "18", "correct"),
        # a slip in the last step, in the first, in both
        ("16 - 3 - 4 = 9. Then 9 * 2 = 19. The answer is 19", "18", "arithmetic"),
        ("She has 16 - 3 = 12 eggs, 12 - 4 = 8 eggs, so 8 × 2 = $16. The answer is 16.", "18", "arithmetic"),
        ("16 - 7 = 8, and 8 * 2 = 17. So 17", 18, "arithmetic"),
        # right sums, wrong plan
        ("16 + 3 = 19. Then 19 * 2 = 38. The answer is 38", 18, "logical"),
        ("16 - 3 = 13, 13 * 2 = 26. The answer is 26", 18, "logical"),
        # a wrong plan with a slip is still a wrong plan
        ("16 + 3 = 18, 18 * 2 = 37. The answer is 37", 18, "logical"),
        # right sums, but another number is given as the answer
        ("16 - 3 - 4 = 9. 9 * 2 = 18. The answer is 9", 18, "logical"),
        ("The answer is 5", 18, "unchecked"),
        ("I do not know.", 18, "unchecked"),
    ],
)
def test_the_kind_of_an_error(text, gold, kind):
    assert classify_errors(text, gold).kind == kind


def test_a_given_prediction_wins_over_the_last_number():
    text = "16 - 3 - 4 = 9, 9 * 2 = 18 dollars on day 1"
    assert classify_errors(text, 18).kind != "correct"
    assert classify_errors(text, 18, predicted="18").kind == "correct"


@pytest.mark.parametrize(
    ("text", "stated", "holds"),
    [
        ("20 sheep + 160 sheep + 80 sheep = 260 sheep", 260, True),
        ("$1,200 x 3 = $3,600", 3600, True),
        ("200 * 40% = 80", 80, True),
        ("32 / 96 * 100 = 33.33", Fraction("33.33"), True),
        ("32 / 96 * 100 = 34", 34, False),
        ("1 - 3/5 = 2/5 of it", Fraction(2, 5), True),
        ("(40 + 9) * 2 = 98", 98, True),
        ("3 − 5 = -2", -2, True),
        ("20 \\times 3 = 61", 61, False),
        ("<<2+2=5>> 7 ÷ 2 = 3.5", Fraction("3.5"), True),
    ],
)
def test_an_equation_is_checked_exactly(text, stated, holds):
    (equation,) = check_equations(text)
    assert (equation.stated, equation.holds) == (stated, holds)


def test_a_rounded_value_is_carried_on_unrounded():
    report = classify_errors("10 / 3 = 3.33 each, 3.33 * 6 = 20 in all. The answer is 20", 20)
    assert report.kind == "correct" and report.corrected_answer == 20


def test_the_answer_is_followed_and_not_only_the_last_equation():
    text = "6 * 7 = 43. To check, 43 - 1 = 42. The answer is 43"
    assert classify_errors(text, 42).corrected_answer == 42


def test_a_gold_that_is_no_number_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="'many' is no number"):
        classify_errors("5", "many")


def test_the_wilson_interval_gives_textbook_values():
    # Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_mcnemar_is_the_exact_sign_test_of_the_discordant_pairs():
    pairs = [(True, True)] * 9 + [(True, False)] * 1 + [(False, True)] * 7
    assert mcnemar(pairs) == {"a_only": 1, "b_only": 7, "p": pytest.approx(2 * 9 / 256)}
    assert mcnemar([])["p"] == 1.0


def rows(kind, *outcomes):
    return [
        {"index": index, "variant": variant, "kind": kind, "correct": correct}
        for index, correct_ones in enumerate(outcomes)
        for variant, correct in enumerate(correct_ones)
    ]


def test_accuracy_counts_only_items_solved_before_and_weighs_items_equally():
    originals = [{"index": i, "correct": i != 2} for i in range(4)]
    variants = rows("remap", [True, False], [False], [True, True], [False, False])
    variants += rows("control", [True, True], [True], [True, True], [True, False])
    result = remap_accuracy(originals, variants)
    assert (result["n_items"], result["n_solved"], result["original_accuracy"]) == (4, 3, 0.75)
    assert result["remap"]["accuracy"] == pytest.approx((0.5 + 0 + 0) / 3)
    assert result["control"]["accuracy"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert (result["remap"]["n_items"], result["remap"]["n_rows"]) == (3, 5)
    assert result["remap"]["ci95"] == wilson_interval(0.5, 3)
    assert result["difference"] == pytest.approx(2 / 3)
    assert result["mcnemar"] == {"a_only": 0, "b_only": 2, "p": 0.5}


def test_nothing_solved_gives_no_accuracy_instead_of_a_zero():
    result = remap_accuracy([{"index": 0, "correct": False}], rows("remap", [True]))
    assert result["remap"]["accuracy"] is None and result["difference"] is None
    assert result["remap"]["ci95"] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("originals", "variants", "message"),
    [
        ([], rows("remap", [True]), "no original row"),
        ([{"index": 0, "correct": True}], rows("remap", [True]) * 2, "stands twice"),
        ([{"index": 0, "correct": True}], rows("other", [True]), "expected remap or control"),
        ([{"index": 0}], [], "has no 'correct'"),
    ],
)
def test_rows_that_do_not_fit_are_refused(originals, variants, message):
    with pytest.raises(UserError, match=message):
        remap_accuracy(originals, variants)
