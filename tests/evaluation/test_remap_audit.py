"""Remapped GSM8K against the real data: coverage, invariants, and 100 items that were solved by hand.

`remap_audit.json` lists row, numeral map, the answer found by hand and the verdict, without the data's text.
"""

import json
import os
import random
from fractions import Fraction
from pathlib import Path

import pytest

from numsft.evaluation.remap import Rejected, bind, classify_errors, read_gsm8k, remap_rows, wilson_interval
from numsft.evaluation.remap.binding import DISPUTED
from numsft.evaluation.remap.draw import last_digit_unit
from numsft.evaluation.remap.numerals import find_numerals
from numsft.evaluation.remap.words import number_words

AUDIT = json.loads(Path(__file__).with_name("remap_audit.json").read_text(encoding="utf-8"))
DATA = os.environ.get("NUMSFT_DATA_DIR")
pytestmark = pytest.mark.xdist_group("remap audit")  # the data are remapped once, not once a worker
needs_data = pytest.mark.skipif(not DATA, reason="NUMSFT_DATA_DIR is not set")


@pytest.fixture(scope="module")
def items():
    return read_gsm8k(Path(DATA), "test")


@pytest.fixture(scope="module")
def remapped(items):
    return remap_rows(items, 1, AUDIT["seed"])


def test_a_hundred_items_were_audited_and_none_is_wrong():
    verdicts = [item["verdict"] for item in AUDIT["items"]]
    assert len(verdicts) == len({item["index"] for item in AUDIT["items"]}) == 100
    assert set(verdicts) == {"right"}
    low, high = wilson_interval(0, 100)
    assert low == 0 and high == pytest.approx(0.0370, abs=1e-4)


@needs_data
def test_the_generator_still_gives_exactly_the_audited_items(remapped):
    rows = {row["index"]: row for row in remapped[0] if row["kind"] == "remap"}
    assert len(rows) == AUDIT["remappable_items"]
    drawn = sorted(random.Random(AUDIT["sample_seed"]).sample(sorted(rows), 100))
    assert drawn == [item["index"] for item in AUDIT["items"]]
    for item in AUDIT["items"]:
        row = rows[item["index"]]
        assert dict(row["numeral_map"]) == item["numerals"]
        assert row["answer"] == item["derived_by_hand"]


@needs_data
def test_what_an_audit_found_wrong_is_refused(items):
    wrong = [index for draw in AUDIT["earlier_draws"] for index in draw["wrong"]]
    assert len(wrong) == len(DISPUTED) == 6
    for index in wrong:
        with pytest.raises(Rejected, match="disputed gold"):
            bind(items[index]["question"], items[index]["answer"])


@needs_data
def test_coverage_is_a_few_hundred_items_and_every_refusal_has_its_reason(items, remapped):
    counts = remapped[1]
    not_reasons = {"items remapped", "items with every variant", "variants", "variants derived twice"}
    assert sum(n for name, n in counts.items() if name not in not_reasons) + counts["items remapped"] == 1319
    assert counts["variants derived twice"] > 0.9 * counts["variants"]


@needs_data
def test_every_row_changes_numerals_only_and_by_small_steps(items, remapped):
    for row in remapped[0]:
        old, new = find_numerals(row["original_question"]), find_numerals(row["question"])
        if row["kind"] == "control":
            assert [n.text for n in new] == [n.text for n in old]
            assert number_words(row["question"]) == number_words(row["original_question"])
            assert row["question"] != row["original_question"] and row["answer"] == row["original_answer"]
            continue
        assert row["answer"] != row["original_answer"] and len(row["answer"]) == len(row["original_answer"])
        assert Fraction(row["answer"]).denominator == 1
        for before, after in zip(old, new, strict=True):
            limit = max(before.value / 5, 2 * last_digit_unit(before))
            assert abs(after.value - before.value) <= limit
        assert _text(row["question"], new) == _text(row["original_question"], old)


@needs_data
def test_identity_gives_every_original_gold(items):
    bound = 0
    for item in items:
        try:
            program = bind(item["question"], item["answer"])
        except Rejected:
            continue
        gold = item["answer"].rpartition("####")[2].strip().replace(",", "")
        assert program.run({})[-1] == Fraction(gold)
        bound += 1
    assert bound > 241


@needs_data
def test_the_gold_solutions_are_no_errors_and_nearly_all_their_equations_hold(items):
    equations = []
    for item in items:
        report = classify_errors(item["answer"], item["answer"].rpartition("####")[2].strip())
        assert report.kind == "correct"
        equations += report.equations
    assert len(equations) > 4000
    assert sum(equation.holds for equation in equations) / len(equations) > 0.995


def _text(question, numerals):
    for numeral in reversed(numerals):
        question = question[: numeral.start] + "#" + question[numeral.end :]
    return question
