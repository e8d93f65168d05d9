"""Number tasks: exact answers, disjoint splits, and the metrics' published definitions."""

import json
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numsft.errors import UserError
from numsft.evaluation.nupa import (
    TASKS,
    digit_match,
    dlength,
    exact_match,
    extract_answer,
    generate,
    lengths_of,
    range_of,
    split_of,
)
from numsft.evaluation.nupa.__main__ import main
from numsft.evaluation.nupa.generate import items
from numsft.evaluation.nupa.numbers import write_rounded, write_scientific


def decimal_result(operation, a, b):
    """The decimal module as an independent judge; it raises if 400 digits were not enough."""
    with localcontext() as context:
        context.prec = 400
        x, y = Decimal(a), Decimal(b)
        return {"add": x + y, "subtract": x - y, "multiply": x * y, "max": max(x, y), "min": min(x, y)}[
            operation
        ]


def written_length(representation, text):
    parts = [part for part in re.split(r"[.e/]", text)]
    return {
        "Integer": lambda: len(parts[0]),
        "Float": lambda: len(parts[1]),
        "Fraction": lambda: max(len(parts[0]), len(parts[1])),
        "Scientific": lambda: len(parts[1]),
    }[representation]()


def test_all_forty_one_combinations_are_there():
    counts = {}
    for task in TASKS.values():
        counts[task.representation] = counts.get(task.representation, 0) + 1
    assert counts == {"Integer": 16, "Float": 12, "Fraction": 7, "Scientific": 6}


@pytest.mark.parametrize("key", list(TASKS))
@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_have_the_published_keys_the_asked_length_and_the_operands_in_the_prompt(key, split):
    for length in (2, 5, 9):
        for row in islice(items(key, length, split, seed=3), 8):
            assert list(row) == ["representation", "task", "length", "range", "operands", "prompt", "answer"]
            assert key == f"{row['representation'].lower()}_{row['task']}"
            assert all(isinstance(operand, str) and operand in row["prompt"] for operand in row["operands"])
            two_numbers = row["task"] not in ("get_digit", "count", "sig_fig")
            numbers = row["operands"] if two_numbers else row["operands"][:1]
            assert max(written_length(row["representation"], number) for number in numbers) == length
            assert split_of(key, row["operands"]) == split


@pytest.mark.parametrize("representation", ["Integer", "Float", "Scientific"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "max", "min"])
@given(length=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_arithmetic_agrees_with_the_decimal_module(representation, name, length, seed):
    for row in islice(items(f"{representation.lower()}_{name}", length, "train", seed), 3):
        assert Decimal(row["answer"]) == decimal_result(name, *row["operands"])
        assert Decimal(row["answer"]) >= 0


@given(length=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_fractions_and_divisions_satisfy_their_defining_equations(length, seed):
    for name in ("add", "subtract", "multiply", "truediv"):
        for row in islice(items(f"fraction_{name}", length, "train", seed), 2):
            (a, b), (c, d) = (map(int, text.split("/")) for text in row["operands"])
            p, q = map(int, row["answer"].split("/"))
            cross = {"add": a * d + c * b, "subtract": a * d - c * b, "multiply": a * c, "truediv": a * d}[
                name
            ]
            assert p * (b * c if name == "truediv" else b * d) == q * cross
            assert (p, q) == (Fraction(p, q).numerator, Fraction(p, q).denominator), "irreducible"
    for row in islice(items("integer_truediv", length, "train", seed), 2):
        (a, b), (p, q) = map(int, row["operands"]), map(int, row["answer"].split("/"))
        assert p * b == q * a
    for kind in ("floordiv", "mod"):
        for row in islice(items(f"integer_{kind}", length, "train", seed), 2):
            a, b = map(int, row["operands"])
            result = int(row["answer"])
            if kind == "mod":
                assert 0 <= result < b and (a - result) % b == 0
                assert len(row["operands"][1]) <= int(0.7 * length) + 1
            else:
                assert result * b <= a < (result + 1) * b


@given(length=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_conversions_keep_the_value(length, seed):
    for key in ("integer_to_scient", "float_to_scient", "scientific_to_float", "fraction_to_float"):
        for row in islice(items(key, min(length, TASKS[key].ranges[3]), "train", seed), 2):
            assert Fraction(row["answer"]) == Fraction(row["operands"][0])
            assert ("e" in row["answer"]) == key.endswith("to_scient")
            assert re.fullmatch(r"\d(\.\d+)e-?\d+|\d+\.\d+", row["answer"])


@given(digits=st.integers(1, 10**12), scale=st.integers(0, 12), figures=st.integers(2, 6))
def test_significant_figures_round_half_up(digits, scale, figures):
    value = Fraction(digits, 10**scale)
    mantissa, exponent = write_rounded(value, figures).split("e")
    step = Fraction(10) ** (int(exponent) - figures + 1)
    rounded = Fraction(mantissa) * Fraction(10) ** int(exponent)
    assert len(mantissa) == figures + 1 and mantissa[0] != "0"
    assert rounded % step == 0
    assert -step / 2 < value - rounded < step / 2 or value - rounded == -step / 2, "a tie goes up"


@pytest.mark.parametrize(
    ("key", "operands", "answer"),
    [
        ("integer_digit_max", ("37", "2198"), "2198"),
        ("integer_digit_min", ("937", "2198"), "137"),
        ("integer_digit_add", ("95", "15"), "0"),
        ("float_digit_add", ("9.75", "12.5"), "11.25"),
        ("float_digit_max", ("7.3315", "1.9"), "7.9315"),
        ("integer_get_digit", ("7276", "1"), "2"),
        ("float_get_digit", ("84.6079", "2"), "6"),
        ("float_length", ("84.6079",), "6"),
        ("integer_count", ("14404", "4"), "3"),
        ("integer_sig_fig", ("99950", "3"), "1.00e5"),
        ("float_sig_fig", ("0.0125", "2"), "1.3e-2"),
        ("float_to_scient", ("0.00123",), "1.23e-3"),
        ("scientific_subtract", ("2.0e1", "1.9e1"), "1.0e0"),
        ("float_add", ("1.5", "1.5"), "3.0"),
    ],
)
def test_worked_examples(key, operands, answer):
    assert TASKS[key].answer(*operands) == answer


@given(seeds=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
def test_train_and_test_share_no_item_whatever_the_seeds(seeds):
    tasks = ["integer_add", "integer_multiply", "float_subtract"]

    def drawn(split, seed):
        rows = generate(tasks, [1, 2], 300, split=split, seed=seed)
        return {(row["representation"], row["task"], *row["operands"]) for row in rows}

    assert not drawn("train", seeds[0]) & drawn("test", seeds[1])


def test_a_sum_and_its_mirror_image_are_in_the_same_split():
    assert all(
        split_of("integer_add", (str(a), str(b))) == split_of("integer_add", (str(b), str(a)))
        for a in range(30)
        for b in range(30)
    )
    assert any(
        split_of("integer_subtract", (str(a), "7")) != split_of("integer_subtract", ("7", str(a)))
        for a in range(30)
    )


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    tasks = ["integer_add", "float_multiply"]
    assert generate(tasks, [2, 4], 50, seed=1) == generate(tasks, [2, 4], 50, seed=1)
    assert generate(tasks, [2, 4], 50, seed=1) != generate(tasks, [2, 4], 50, seed=2)


def test_rows_are_spread_evenly_and_an_exhausted_length_leaves_its_share_to_the_others():
    rows = generate(["integer_add", "integer_multiply"], [1, 3], 1200)
    counts = {}
    for row in rows:
        counts[row["length"]] = counts.get(row["length"], 0) + 1
    assert len(rows) == 1200 == len({row["prompt"] for row in rows})
    assert counts[1] <= 200, "two tasks have at most 200 one-digit items"
    assert abs(counts[2] - counts[3]) <= 2, "the last round may end between two cells"
    assert 120 < len(generate(["integer_add", "integer_multiply"], [1, 1], 1200)) <= 200


def test_test_lengths_reach_every_range_and_pairs_stay_comparable_in_length():
    assert lengths_of("integer_add", "train") == range(1, 9)
    assert lengths_of("integer_add", "test") == range(3, 21)
    assert lengths_of("fraction_max", "test") == range(1, 21)
    assert lengths_of("integer_max", "test") == range(5, 101)
    assert lengths_of("float_max", "test") == range(3, 101)
    assert lengths_of("integer_sig_fig", "train") == range(2, 21)
    assert [range_of("integer_add", n) for n in (4, 5, 9, 15)] == ["S", "M", "L", "XL"]
    assert [range_of("integer_max", n) for n in (10, 11, 21, 61)] == ["S", "M", "L", "XL"]
    for row in islice(items("integer_add", 9, "test", 0), 200):
        assert min(map(len, row["operands"])) >= 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(tasks=["integer_ad"], digits=[1, 2], size=5), "integer_ad"),
        (dict(tasks=[], digits=[1, 2], size=5), "empty"),
        (dict(tasks=["integer_add"], digits=[3, 2], size=5), "[3, 2]"),
        (dict(tasks=["integer_add"], digits=[1, 2.5], size=5), "2.5"),
        (dict(tasks=["integer_add"], digits=[1, 2], size=0), "at least 1"),
        (dict(tasks=["integer_add"], digits=[1, 2], size=5, split="dev"), "dev"),
    ],
)
def test_senseless_requests_are_refused_in_one_sentence(arguments, named):
    with pytest.raises(UserError, match=re.escape(named)) as caught:
        generate(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "digits", "difference"),
    [
        ("1234", "1234", True, 1.0, 0),
        ("234", "1234", False, 0.75, 1),
        ("91234", "1234", False, 1.0, 1),
        ("12.5", "12.75", False, 0.75 - 0.25, 1),
        ("3/4", "3/14", False, 2 / 3, 1),
        ("1.5e-3", "1.5e3", False, 1.0, 0),
        ("1.5e+3", "1.5e3", True, 1.0, 0),
        ("", "507", False, 0.0, 3),
        ("no idea", "507", False, 0.0, 3),
        ("1.50", "1.5", False, 1.0, 1),
    ],
)
def test_metrics_on_worked_examples(prediction, gold, exact, digits, difference):
    assert exact_match(prediction, gold) is exact
    assert digit_match(prediction, gold) == pytest.approx(digits)
    assert dlength(prediction, gold) == difference


@pytest.mark.parametrize("key", list(TASKS))
def test_every_answer_is_its_own_best_prediction_and_survives_extraction(key):
    for row in islice(items(key, 4, "train", 0), 20):
        assert extract_answer(f" {row['answer']}. Next: 7") == row["answer"]
        assert exact_match(row["answer"], row["answer"])
        assert digit_match(row["answer"], row["answer"]) == 1.0


def test_extraction_keeps_signs_and_gives_nothing_for_words():
    assert extract_answer("it is 1e-3") == "1e-3"
    assert extract_answer("it is -5, not 7") == "-5"
    assert extract_answer("no idea") == ""


def test_scientific_numbers_keep_one_decimal():
    assert write_scientific(Fraction(5000)) == "5.0e3"
    assert write_scientific(Fraction(1, 8)) == "1.25e-1"


def test_the_command_writes_per_length_rows_and_more_rows_only_append(tmp_path):
    def run(count, name, split="test"):
        output = tmp_path / name
        arguments = ["--split", split, "--per_length", str(count), "--seed", "5", "--output", str(output)]
        assert main([*arguments, "--tasks", "float_add", "integer_max"]) == 0
        return [json.loads(line) for line in output.read_text().splitlines()]

    few, many = run(2, "few.jsonl"), run(4, "many.jsonl")
    assert len(few) == 2 * (18 + 96)
    assert all(row in many for row in few) and len(many) == 2 * len(few)
    train = {row["prompt"] for row in run(50, "train.jsonl", "train")}
    assert not train & {row["prompt"] for row in many}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.jsonl", "many.jsonl", "train.jsonl"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--split", "dev", "--per_length", "2"],
        ["--split", "test", "--per_length", "0"],
        ["--split", "test", "--per_length", "two"],
        ["--split", "test"],
        ["--split", "test", "--per_length", "2", "--tasks", "integer_ad"],
    ],
)
def test_a_bad_argument_is_one_line_exit_two_and_no_file(arguments, tmp_path, capsys):
    assert main([*arguments, "--output", str(tmp_path / "rows.jsonl")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and len(message) < 1200
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_folder_is_refused(tmp_path, capsys):
    assert main(["--split", "test", "--per_length", "1", "--output", str(tmp_path)]) == 2
    assert "folder" in capsys.readouterr().err
