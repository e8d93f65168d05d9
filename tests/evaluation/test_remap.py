"""Numeric remapping: bindings are sure or refused, draws are small, and every variant is checked twice."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numsft.evaluation.remap import (
    REASONS,
    Rejected,
    bind,
    control_rewrite,
    program_problems,
    remap,
    remap_problems,
    remap_rows,
)
from numsft.evaluation.remap.__main__ import main
from numsft.evaluation.remap.annotations import parse_expression, parse_solution
from numsft.evaluation.remap.binding import Source
from numsft.evaluation.remap.draw import last_digit_unit, numeral_bounds, small_steps
from numsft.evaluation.remap.numerals import find_numerals, rewrite
from numsft.evaluation.remap.second import second_derivation
from numsft.evaluation.remap.words import number_words

SHELLS = (
    "Ana has 24 shells and finds 17 more. She sells all of them for $5 each. How much does she get?",
    "She has 24 + 17 = <<24+17=41>>41 shells.\nShe gets 41 * 5 = $<<41*5=205>>205.\n#### 205",
)
SALE = (
    "A coat costs $80 and is sold at 25% off. How much is it now, with a bag of $36?",
    "It is 80 * 25% = $<<80*25*.01=20>>20 cheaper.\nSo it is 80 - 20.\n#### 60",
)
SHARED = (
    "Tom packs 36 pens in boxes of 9 and then buys 13 boxes. How many boxes are there?",
    "He fills 36 / 9 = <<36/9=4>>4 boxes.\nThere are 4 + 13 = <<4+13=17>>17.\n#### 17",
)


def reason(question, answer):
    with pytest.raises(Rejected) as caught:
        bind(question, answer)
    return caught.value.reason


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16-3-4", 9),
        ("2*(3+4)", 14),
        ("200*40*.01", 80),
        ("40%*50", 20),
        ("1/3+1/6", Fraction(1, 2)),
        ("-3+5", 2),
        ("80,000*1.5", 120000),
    ],
)
def test_an_expression_is_computed_exactly(text, value):
    assert parse_expression(text).evaluate() == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x0",
        "2**9",
        "7//2",
        "7%3",
        "abs(3)",
        "(2)(3)",
        "3 4",
        "[1]",
        "1 if 2 else 3",
        "",
        "1+" * 200,
    ],
)
def test_anything_but_arithmetic_is_refused_unevaluated(text):
    with pytest.raises(Rejected) as caught:
        parse_expression(text)
    assert caught.value.reason == "unreadable annotation"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It is 3.\n#### 3", "no annotation"),
        ("<<3+4=7>>7", "unreadable answer"),
        ("<<3+4=7>>7\n#### 8", "last step is not the answer"),
        ("<<10/3=3.33>>3.33 <<3.33*3=9.99>>\n#### 9.99", "inexact step"),
        ("<<3/0=3>>3\n#### 3", "inexact step"),
        ("<<a+4=7>>7\n#### 7", "unreadable annotation"),
    ],
)
def test_a_solution_that_does_not_compute_is_refused(answer, expected):
    with pytest.raises(Rejected) as caught:
        parse_solution(answer)
    assert caught.value.reason == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("He has 16 eggs, $80,000 and $1.50.", ["16", "80,000", "1.50"]),
        ("A 20-minute walk at 30mph, .5 hours.", ["20", "30", ".5"]),
        ("They lose 40% and 15 percent.", ["40", "15"]),
        ("He reads 25.", ["25"]),
        ("He buys 3, 4, and 5 of them.", ["3", "4", "5"]),
    ],
)
def test_numerals_are_found_with_their_spans(question, expected):
    numerals = find_numerals(question)
    assert [numeral.text for numeral in numerals] == expected
    assert [question[numeral.start : numeral.end] for numeral in numerals] == expected


@pytest.mark.parametrize(
    "text",
    [
        "at 3:30",
        "5-10 cats",
        "5 to 10 cats",
        "the 2nd cat",
        "in the 90's",
        "cat #4",
        "on May 5",
        "5 June",
        "at 7 pm",
        "at 7 a.m.",
        "in grade 3",
        "in 1990",
        "1 1/2 cups",
        "½ a cup",
        "5 million cats",
        "a 3x4 field",
        "a B12 pill",
        "between 5 and 10 cats",
        "page 007",
        "a ratio of 2:3",
    ],
)
def test_digits_that_are_no_plain_numeral_refuse_the_item(text):
    with pytest.raises(Rejected) as caught:
        find_numerals(f"Bo saw it {text} there.")
    assert caught.value.reason == "odd numeral"


def test_zero_one_a_hundred_and_fractions_stay_fixed():
    numerals = find_numerals("He had 100 cats, gave 2/3 away for $1 each and kept 40.")
    assert [(numeral.text, numeral.fixed) for numeral in numerals] == [
        ("100", True),
        ("2", True),
        ("3", True),
        ("1", True),
        ("40", False),
    ]


def test_each_literal_is_bound_to_its_numeral_step_or_constant():
    program = bind(
        "A shop sells 15 cakes a day at $11 each. How much is that in a week?",
        "It is 15*11=<<15*11=165>>165 a day.\nSo 165*7=<<165*7=1155>>1155.\n#### 1155",
    )
    assert [[(s.kind, s.index) for s in row] for row in program.sources] == [
        [("numeral", 0), ("numeral", 1)],
        [("step", 0), ("constant", 0)],
    ]
    assert program.run({0: Fraction(16)})[-1] == 16 * 11 * 7


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        # two readings of one literal
        ("It takes 2 bolts of blue, half that of white.", "<<2/2=1>>1 <<2+1=3>>3\n#### 3", "implicit word"),
        ("He runs 3 sprints 3 times.", "<<3*3=9>>9\n#### 9", "duplicate numeral"),
        ("He gets 5% and $0.05.", "<<5+.05=5.05>>\n#### 5.05", "duplicate numeral"),
        ("A pen is $13, a bag $26.", "<<13*2=26>>26 <<26+13=39>>39\n#### 39", "unexplained constant"),
        ("Twice 13 and 26 more.", "<<13*2=26>>26 <<26+26=52>>52\n#### 52", "step or numeral"),
        ("He has 14, eats 5 and 9 are red.", "<<14-5=9>>9 <<9*9=81>>81\n#### 81", "step or numeral"),
        ("Ed has 14 and Al 15.", "<<14+15=29>>29 <<29-15=14>>14\n#### 14", "literal reused"),
        ("A dozen costs $12 here.", "<<12*12=144>>144\n#### 144", "implicit word"),
        ("In 7 weeks he eats 50.", "<<7*50=350>>350\n#### 350", "implicit word"),
        ("He has 20, 15 and 5 left.", "<<20-15=5>>5\n#### 5", "unused numeral"),
        ("He has 20, 15 and 8.", "<<20+15=35>>35 <<20*8=160>>160\n#### 160", "literal reused"),
        ("He has 20, 15, 8 and 6.", "<<20+15=35>>35 <<8*6=48>>48\n#### 48", "unused step"),
        ("He buys 20 at $15.", "<<20*15=300>>300 <<300-9=291>>291\n#### 291", "unexplained constant"),
        ("Both eat 4 apples for 30 days.", "<<4+1=5>>5 <<30*5=150>>150\n#### 150", "unexplained constant"),
        ("He has 10, gives 3 and 2 each day.", "<<10+3=13>>13 <<13*2=26>>26 <<26*7=182>>182\n#### 182",
         "unexplained constant"),
        ("Two cats eat 20 of 18.", "<<20-18=2>>2 <<2*2=4>>4\n#### 4", "step or constant"),
        ("Bo has none.", "<<2+3=5>>5\n#### 5", "no numeral"),
        ("20 by day, 40 by night, 15 off, 35 off.",
         "<<20-15=5>>5 <<40-35=5>>5 <<5*5=25>>25\n#### 25", "two equal steps"),
    ],
)  # fmt: skip
def test_an_unsure_binding_is_refused_with_its_reason(question, answer, expected):
    assert reason(question, answer) == expected
    assert expected in REASONS


def test_the_answer_of_an_item_that_is_not_its_last_step_is_refused():
    assert reason(*SALE) == "last step is not the answer"


def test_variants_differ_are_seeded_and_recompute_the_answer():
    program = bind(*SHELLS)
    variants = remap(program, 5, seed=3, index=0)
    assert len({variant.question for variant in variants}) == 5
    assert variants == remap(program, 5, seed=3, index=0)
    assert variants != remap(program, 5, seed=4, index=0)
    for variant in variants:
        old, more, price = (int(variant.values[i]) for i in range(3))
        assert variant.answer == (old + more) * price != 205
        assert variant.question == (
            f"Ana has {old} shells and finds {more} more. She sells all of them for ${price} each. "
            "How much does she get?"
        )
        assert variant.derived_twice


def test_a_division_stays_whole():
    for variant in remap(bind(*SHARED), 4, seed=0, index=0):
        assert variant.values[0] % variant.values[1] == 0


@settings(deadline=None, max_examples=60)
@given(
    digits=st.integers(2, 99999).filter(lambda n: n not in (100,)),
    decimals=st.integers(0, 2),
    percent=st.booleans(),
)
def test_a_step_is_small_and_keeps_digits_and_decimals(digits, decimals, percent):
    text = f"{digits / 10**decimals:.{decimals}f}"
    question = f"He takes {text}{'%' if percent else ''} of it."
    numeral = find_numerals(question)[0]
    if numeral.fixed or numeral.value < Fraction(1, 100):
        return
    steps = small_steps(numeral, question, frozenset({Fraction(7)}))
    for new in [*steps[:: 1 + len(steps) // 40], steps[-1]]:
        assert abs(new - numeral.value) <= max(numeral.value / 5, 2 * last_digit_unit(numeral))
        written = rewrite(question, (numeral,), {0: new})
        again = find_numerals(written)[0]
        assert again.value == new
        assert again.decimals == numeral.decimals
        assert len(again.text) == len(numeral.text)
        assert (new > 7) == (numeral.value > 7)
        if new != numeral.value:
            assert new not in (0, 1, 100)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16", {13, 14, 15, 17, 18, 19}),
        ("3", {2, 4, 5}),
        ("30", {25, 35}),
        ("10", {11, 12}),
        ("50", {40, 60}),
    ],
)
def test_the_steps_of_some_numerals(text, expected):
    numeral = find_numerals(f"He has {text} left.")[0]
    assert set(small_steps(numeral, f"He has {text} left.", frozenset())[1:]) == expected


def test_an_article_keeps_fitting():
    question = "Bo takes an 8 foot rope and a 12 foot rope."
    first, second = find_numerals(question)
    assert small_steps(first, question, frozenset()) == [8]
    assert 11 not in small_steps(second, question, frozenset())


def test_no_numeral_crosses_what_a_unit_or_a_word_bounds():
    program = bind("He works 6 hours on 23 of thirty days. How many hours?", "<<6*23=138>>138\n#### 138")
    assert {Fraction(24), Fraction(30)} <= numeral_bounds(program)
    assert max(small_steps(program.numerals[1], program.question, numeral_bounds(program))) == 23


def test_a_planted_wrong_binding_is_caught():
    """Every literal of every step is bound to every other source; a change that matters never passes."""
    caught = 0
    for item in (SHELLS, SHARED):
        program = bind(*item)
        assert program_problems(program) == []
        values = remap(program, 1, 0, 0)[0].values
        for number, row in enumerate(program.sources):
            for position, right in enumerate(row):
                others = [
                    *(Source("numeral", i, program.numerals[i].value) for i in program.free),
                    *(Source("step", i, step.value) for i, step in enumerate(program.steps[:number])),
                    *(Source("numeral", i, right.value) for i in program.free),
                    *(Source("step", i, right.value) for i in range(number)),
                    Source("constant", 0, right.value),
                ]
                for wrong in others:
                    if wrong == right:
                        continue
                    planted = tuple(
                        tuple(wrong if (n, p) == (number, position) else s for p, s in enumerate(r))
                        for n, r in enumerate(program.sources)
                    )
                    mutant = replace(program, sources=planted)
                    assert program_problems(mutant), (number, position, wrong)
                    question = rewrite(program.question, program.numerals, values)
                    assert mutant.run(values)[-1] == program.run(values)[-1] or remap_problems(
                        mutant, values, question, mutant.run(values)[-1]
                    )
                    caught += 1
    assert caught > 20


def test_a_text_that_is_not_the_map_is_caught():
    program = bind(*SHELLS)
    values = {0: Fraction(25), 1: Fraction(18), 2: Fraction(6)}
    right = rewrite(program.question, program.numerals, values)
    answer = Fraction(43 * 6)
    assert remap_problems(program, values, right, answer) == []
    assert remap_problems(program, values, right.replace("25", "26"), answer)
    assert remap_problems(program, values, right.replace("shells", "stones"), answer)
    assert remap_problems(program, values, right, answer + 1)
    assert remap_problems(program, values, right.replace("18", "18th"), answer)
    # values that make the new item ambiguous: 25 + 5 = 30 shells, and a numeral 30
    clash = {0: Fraction(25), 1: Fraction(5), 2: Fraction(30)}
    assert remap_problems(program, clash, rewrite(program.question, program.numerals, clash), Fraction(900))


def test_words_that_compute_something_else_than_the_annotation_refuse_the_item():
    question, answer = SHELLS
    program = bind(question, answer.replace("24 + 17 =", "4 + 37 ="))
    assert second_derivation(program, {0: Fraction(25)})[1]
    with pytest.raises(Rejected) as caught:
        remap(program, 1, 0, 0)
    assert caught.value.reason == "prose disagrees"


def test_an_item_without_a_whole_draw_is_refused():
    program = bind("Seventeen kids share 34 nuts. How many does each get?", "<<34/17=2>>2\n#### 2")
    with pytest.raises(Rejected) as caught:
        remap(program, 1, 0, 0)
    assert caught.value.reason == "no valid draw"


@pytest.mark.parametrize("level", [1, 2, 3, 6, 9])
def test_a_level_draws_its_number_of_digits(level):
    program = bind(*SHELLS)
    variants = remap(program, 3, 0, 0, level)
    assert len(variants) == 3
    for variant in variants:
        lengths = [len(str(variant.values[i])) for i in range(3)]
        assert lengths == ([2, 2, 1] if level == 1 else [level + 1] * 3)
        assert variant.answer == (variant.values[0] + variant.values[1]) * variant.values[2]


def test_a_level_keeps_divisions_whole_and_writes_commas():
    for variant in remap(bind(*SHARED), 3, 0, 0, 6):
        assert variant.answer == variant.values[0] / variant.values[1] + variant.values[2]
        assert "," in variant.question


def test_the_control_keeps_every_number_and_changes_words():
    question = SHELLS[0] + " He buys two and every other one on 3 days."
    seen = set()
    for variant in range(100):
        text = control_rewrite(question, f"seed {variant}", frozenset(seen))
        assert text not in seen and text != question
        assert [n.value for n in find_numerals(text)] == [n.value for n in find_numerals(question)]
        assert number_words(text) == number_words(question)
        seen.add(text)


def test_the_control_renames_people_consistently():
    text = control_rewrite("Tom gave Mary's dog 20 bones. Tom has 5 left, Mary 6.", "x")
    assert "Tom" not in text and "Mary" not in text
    new = text.split(" gave")[0].split(" handed")[0].split(" ")[-1]
    assert text.count(new) == 2


def test_the_control_keeps_the_grammar_of_needs_and_wants():
    for seed in range(20):
        text = control_rewrite("She needs to buy 20 pens and wants a car.", str(seed))
        assert "requires to" not in text and "wishes a" not in text


def test_rows_have_the_published_keys_and_pair_each_variant_with_a_control():
    items = [{"question": q, "answer": a} for q, a in (SHELLS, SALE, SHARED)]
    rows, counts = remap_rows(items, 2, 0)
    assert counts["items remapped"] == 2 and counts["last step is not the answer"] == 1
    assert sorted((r["index"], r["variant"], r["kind"]) for r in rows) == sorted(
        (index, variant, kind) for index in (0, 2) for variant in (0, 1) for kind in ("remap", "control")
    )
    for row in rows:
        assert {"index", "variant", "kind", "original_question", "question", "answer"} <= row.keys()
        assert row["original_question"] == items[row["index"]]["question"] != row["question"]
        assert (row["answer"] == row["original_answer"]) == (row["kind"] == "control")


def write_split(folder, items):
    path = folder / "gsm8k" / "test.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in items))


def test_the_command_writes_rows_and_prints_the_coverage(tmp_path, capsys):
    write_split(tmp_path, [SHELLS, SALE, SHARED])
    output = tmp_path / "out" / "remap.jsonl"
    arguments = ["--data_dir", str(tmp_path), "--split", "test", "--variants", "2", "--seed", "1"]
    assert main([*arguments, "--output", str(output)]) == 0
    table = capsys.readouterr().out
    assert "| items remapped | 2 | 66.7 % |" in table and "| last step is not the answer | 1 |" in table
    first = output.read_text()
    assert len(first.splitlines()) == 8
    assert main([*arguments, "--output", str(output)]) == 0
    assert output.read_text() == first
    assert main([*arguments, "--level", "3", "--output", str(output)]) == 0
    assert all(json.loads(line)["level"] == 3 for line in output.read_text().splitlines())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"--data_dir": "nowhere"}, "gsm8k/test.jsonl"),
        ({"--split": "dev"}, "dev"),
        ({"--variants": "0"}, "--variants is 0"),
        ({"--level": "13"}, "--level is 13"),
        ({"--output": "."}, "is a folder"),
    ],
)
def test_a_mistake_is_one_message_with_status_2(tmp_path, capsys, monkeypatch, change, expected):
    write_split(tmp_path, [SHELLS])
    monkeypatch.chdir(tmp_path)
    options = {"--data_dir": str(tmp_path), "--split": "test", "--output": "r.jsonl"} | change
    assert main([word for pair in options.items() for word in pair]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and len(captured.err.splitlines()) <= 4
    assert captured.out == "" and not Path("r.jsonl").exists()


def test_a_broken_data_file_is_named_with_its_line(tmp_path, capsys):
    write_split(tmp_path, [SHELLS])
    with (tmp_path / "gsm8k" / "test.jsonl").open("a") as file:
        file.write("{broken\n")
    output = tmp_path / "r.jsonl"
    assert main(["--data_dir", str(tmp_path), "--split", "test", "--output", str(output)]) == 2
    assert "line 2" in capsys.readouterr().err and not output.exists()


def test_it_runs_as_a_module(tmp_path):
    write_split(tmp_path, [SHELLS])
    done = subprocess.run(
        [sys.executable, "-m", "numsft.evaluation.remap", "--data_dir", tmp_path, "--output", tmp_path / "r"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "items remapped" in done.stdout and "Traceback" not in done.stderr
