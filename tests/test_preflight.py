"""Preflight: what the tokenised rows hold, on rows that TRL prepared."""

import time

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from tiny import tiny_llama, tiny_tokenizer
from trl import SFTConfig, SFTTrainer

from numsft.errors import UserError
from numsft.preflight import preflight

ROWS = [{"prompt": f"{i} + {i} = ", "completion": str(i + i)} for i in range(40)]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def digits(tokenizer):
    return tokenizer.convert_tokens_to_ids(list("0123456789"))


@pytest.fixture
def prepare(tmp_path, tokenizer):
    """The dataset as SFTTrainer prepares it."""

    def prepare(rows, **settings):
        config = SFTConfig(
            output_dir=str(tmp_path),
            report_to="none",
            use_cpu=True,
            bf16=False,
            **{"max_length": 64, **settings},
        )
        trainer = SFTTrainer(
            tiny_llama(), config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
        )
        return trainer.train_dataset

    return prepare


def check(prepared, rows, tokenizer, **settings):
    return preflight(prepared, Dataset.from_list(rows), tokenizer, **{"max_length": 64, **settings})


def by_hand(rows, tokenizer):
    """Trained tokens and digits, counted one row at a time: completion and stop token."""
    tokens = sum(len(tokenizer(row["completion"])["input_ids"]) + 1 for row in rows)
    return tokens, sum(character.isdigit() for row in rows for character in row["completion"])


def test_counts_equal_those_made_row_by_row(prepare, tokenizer, digits):
    report = check(prepare(ROWS), ROWS, tokenizer, number_tokens=digits)
    trained, numbers = by_hand(ROWS, tokenizer)
    assert (report.raw_rows, report.rows, report.sequences, report.dropped) == (40, 40, 40, {})
    assert (report.trainable_tokens, report.number_tokens) == (trained, numbers)
    assert report.tokens == trained + sum(len(row["prompt"]) for row in ROWS)
    assert report.longest == max(len(row["prompt"] + row["completion"]) + 1 for row in ROWS)
    assert report.boundary == ("0 + 0 = ", "0<|im_end|>")
    assert (report.prefix_checked, report.prefix_broken) == (40, 0)
    assert (report.stop_missing, report.stop_repeated, report.truncated) == (0, 0, 0)
    assert not any(line.startswith("warning") for line in report.lines())
    assert any("'0 + 0 = ' | '0<|im_end|>'" in line for line in report.lines())


def test_a_mask_function_counts_the_same_numbers(prepare, tokenizer, digits):
    prepared = prepare(ROWS)
    ids = check(prepared, ROWS, tokenizer, number_tokens=digits)
    mask = check(prepared, ROWS, tokenizer, number_tokens=lambda labels: np.isin(labels, digits))
    assert ids.number_tokens == mask.number_tokens > 0
    assert check(prepared, ROWS, tokenizer).number_tokens is None


@pytest.mark.parametrize("packing_strategy", ["bfd", "bfd_split", "wrapped"])
def test_packing_changes_neither_tokens_nor_numbers(prepare, tokenizer, digits, packing_strategy):
    plain = check(prepare(ROWS), ROWS, tokenizer, number_tokens=digits)
    packed = prepare(ROWS, packing=True, packing_strategy=packing_strategy)
    report = check(packed, ROWS, tokenizer, number_tokens=digits, packing=packing_strategy)
    assert report.sequences < report.raw_rows
    assert report.tokens == plain.tokens
    if (
        packing_strategy == "wrapped"
    ):  # its sequences may begin with a trained token, which is never predicted
        assert plain.trainable_tokens - report.sequences <= report.trainable_tokens <= plain.trainable_tokens
        assert report.stop_missing is None and any("not checked" in line for line in report.lines())
    else:
        assert (report.trainable_tokens, report.number_tokens) == (
            plain.trainable_tokens,
            plain.number_tokens,
        )
        assert report.rows == plain.rows and report.longest == plain.longest
    if packing_strategy == "bfd":
        assert (report.stop_missing, report.stop_repeated, report.dropped) == (0, 0, {})
        assert any("packed into" in line for line in report.lines())


@pytest.mark.parametrize("packing", [None, "bfd"])
def test_prompts_as_long_as_the_limit_are_counted_as_the_reason(prepare, tokenizer, packing):
    rows = [*ROWS, *({"prompt": "x" * length, "completion": "1"} for length in (63, 64, 65, 200))]
    prepared = prepare(rows, packing=packing is not None, max_length=64)
    report = check(prepared, rows, tokenizer, packing=packing)
    assert report.dropped == {"prompt >= max_length (64)": 3}
    assert report.rows == 41
    assert report.truncated == (4 if packing else 1), "packing keeps the rows it cuts off"
    assert "prompt >= max_length (64) for 3 of 44 rows" in "\n".join(report.lines())


def test_long_chat_prompts_are_counted_with_their_template(prepare, tokenizer):
    def row(length):
        return {
            "prompt": [{"role": "user", "content": "x" * length}],
            "completion": [{"role": "assistant", "content": "7"}],
        }

    template = len(tokenizer.apply_chat_template(row(0)["prompt"], add_generation_prompt=True)["input_ids"])
    rows = [row(5), row(64 - template - 1), row(64 - template), row(70)]
    report = check(prepare(rows), rows, tokenizer)
    assert report.dropped == {"prompt >= max_length (64)": 2}


def test_every_row_dropped_is_refused_with_the_reason(prepare, tokenizer):
    rows = [{"prompt": "x" * 70, "completion": "1"}] * 5
    for packing in (None, "bfd"):
        with pytest.raises(UserError) as caught:
            check(prepare(rows, packing=packing is not None), rows, tokenizer, packing=packing)
        text = str(caught.value)
        assert "prompt >= max_length (64) for 5 of 5 rows" in text and "\n" not in text


def test_completely_masked_rows_are_another_reason(tokenizer):
    prepared = Dataset.from_list(
        [
            {"input_ids": [5, 6, 7, 1], "labels": [-100, -100, 7, 1]},
            {"input_ids": [5, 6, 7], "labels": [-100] * 3},
        ]
    )
    report = check(prepared, ROWS[:2], tokenizer)
    assert report.dropped == {"no token to train": 1} and report.rows == 1
    with pytest.raises(UserError, match="no token to train for 1 of 1 rows"):
        check(prepared.select([1]), ROWS[:1], tokenizer)


def test_a_stop_token_that_is_missing_or_repeated_is_counted_but_not_in_cut_off_rows(tokenizer):
    stop = tokenizer.eos_token_id
    rows = [
        [9, 5, 6, stop],
        [9, 5, 6, 7],
        [9, stop, 6, stop],
        [9, 5, stop, 8],
        [9, *[5] * 9],
        [9, *[5] * 8, stop],
    ]
    prepared = Dataset.from_list([{"input_ids": row, "labels": [-100, *row[1:]]} for row in rows])
    report = check(prepared, ROWS[:6], tokenizer, max_length=10)
    assert (report.stop_missing, report.stop_repeated, report.truncated) == (1, 1, 1)
    assert any("warning" in line and "'<|im_end|>'" in line for line in report.lines())
    assert check(prepared, ROWS[:6], tokenizer, max_length=None).stop_missing == 2


def test_a_prompt_that_merges_with_its_completion_is_counted_on_a_stated_sample(prepare):
    tokenizer = tiny_tokenizer()

    class Merging:
        """Sees "= 1" as one token, as tokenizers with a space before the word do."""

        eos_token, eos_token_id = tokenizer.eos_token, tokenizer.eos_token_id
        decode = tokenizer.decode

        def __call__(self, text):
            return {
                "input_ids": [
                    999 if part == "= 1" else part for part in text.replace("= 1", "|= 1|").split("|")
                ]
            }

    rows = [{"prompt": "a = ", "completion": str(n)} for n in (1, 2, 13, 4)]
    report = check(prepare(rows), rows, Merging())
    assert (report.prefix_checked, report.prefix_broken) == (4, 4)
    sampled = check(prepare(ROWS), ROWS, tokenizer, prefix_sample=7)
    assert sampled.prefix_checked == 7 and any("all 7 rows checked" in line for line in sampled.lines())


def test_prompts_shared_with_the_other_split_are_counted(prepare, tokenizer):
    other = Dataset.from_list([{"prompt": "3 + 3 =", "completion": "6"}, {"prompt": "x", "completion": "y"}])
    report = check(prepare(ROWS), ROWS, tokenizer, other=other, name="eval")
    assert report.overlap == 1
    assert "warning: eval data: prompts shared with the other split: 1" in report.lines()


def test_the_first_token_of_a_document_is_never_counted(tokenizer):
    prepared = Dataset.from_list(
        [{"input_ids": [5, 6, 1, 7, 8, 1], "labels": [5, 6, 1, 7, 8, 1], "seq_lengths": [3, 3]}]
    )
    report = check(prepared, ROWS[:2], tokenizer, packing="bfd", number_tokens=[5, 7, 8])
    assert (report.trainable_tokens, report.number_tokens, report.rows) == (4, 1, 2)


def test_a_row_selection_is_respected(prepare, tokenizer, digits):
    prepared = prepare(ROWS).select([3, 1])
    report = check(prepared, [ROWS[3], ROWS[1]], tokenizer, number_tokens=digits)
    assert (report.rows, report.number_tokens, report.boundary[0]) == (2, 2, "3 + 3 = ")


def test_a_quarter_of_a_million_rows_take_seconds(tokenizer):
    rows, length = 262_000, 60
    ids = np.tile(np.arange(4, 4 + length), rows)
    labels = ids.copy().reshape(rows, length)
    labels[:, :30] = -100
    offsets = np.arange(0, rows * length + 1, length, dtype=np.int32)
    columns = {"input_ids": ids, "labels": labels.ravel()}
    table = pa.table({name: pa.ListArray.from_arrays(offsets, column) for name, column in columns.items()})
    prepared = Dataset(table)
    start = time.process_time()
    report = check(prepared, ROWS[:5], tokenizer, number_tokens=range(10, 50))
    assert report.trainable_tokens == rows * 30 and report.number_tokens == rows * 16
    assert time.process_time() - start < 5
