"""Teacher-forced log-MAE in evaluation: against a plain loop over the text of each row."""

import math
import re

import pytest
import torch
from helpers import sums_dataset, tiny_trainer
from tiny import tiny_llama, tiny_tokenizer

ROWS = 7


def expected(trainer, dataset):
    """(mean error of numbers, of rows' last numbers): full logits, one row, one character at a time."""
    tokenizer = tiny_tokenizer()
    digits = tokenizer.convert_tokens_to_ids(list("0123456789"))
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    every, last = [], []
    for row in dataset:
        text = row["prompt"] + row["completion"]
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            best = model(ids).logits[0][:, digits].argmax(-1).tolist()
        errors = []
        for match in re.finditer(r"\d+(?:\.\d+)?", text):
            if match.start() < len(row["prompt"]):
                continue
            written = "".join(
                text[t] if text[t] == "." else str(best[t - 1]) for t in range(match.start(), match.end())
            )
            errors.append(abs(math.log10(1 + float(written)) - math.log10(1 + float(match[0]))))
        every += errors
        last += errors[-1:]
    shares = [sum(error < 1e-12 for error in errors) / len(errors) for errors in (every, last)]
    return sum(every) / len(every), sum(last) / len(last), *shares


def numbers_dataset():
    """Completions with one, two and no numbers, decimals too."""
    dataset = sums_dataset(ROWS, seed=5)
    completions = [
        text if index % 2 else f"7 then {text}" for index, text in enumerate(dataset["completion"])
    ]
    return dataset.remove_columns("completion").add_column("completion", completions)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_log_mae_is_that_of_a_plain_loop(tmp_path, batch_size):
    dataset = numbers_dataset()
    trainer = tiny_trainer(
        tmp_path,
        model=tiny_llama(vocab_size=104, seed=4),
        eval_dataset=dataset,
        per_device_eval_batch_size=batch_size,
    )
    metrics = trainer.evaluate()
    every, last, right, right_last = expected(trainer, dataset)
    assert every > 0.05 and abs(every - last) > 1e-3  # the two can be told apart
    assert metrics["eval_log_mae"] == pytest.approx(every, rel=1e-6)
    assert metrics["eval_answer_log_mae"] == pytest.approx(last, rel=1e-6)
    assert metrics["eval_number_accuracy"] == pytest.approx(right, rel=1e-12)
    assert metrics["eval_answer_accuracy"] == pytest.approx(right_last, rel=1e-12)


def test_packed_evaluation_equals_padded_although_training_is_not_packed(tmp_path):
    """TRL pads such rows and lets their documents attend to each other."""
    dataset = numbers_dataset()
    found = []
    for packing in (False, True):
        trainer = tiny_trainer(
            tmp_path,
            model=tiny_llama(vocab_size=104, seed=4),
            eval_dataset=dataset,
            eval_packing=packing,
            max_length=128,
        )
        found.append(trainer.evaluate())
    names = ("loss", "digit_mass", "digit_logit", "entropy", "log_mae", "answer_log_mae", "number_accuracy")
    for name in [f"eval_{name}" for name in names]:
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-5), name


def test_an_evaluation_without_numbers_has_no_error(tmp_path):
    dataset = sums_dataset(4)
    words = dataset.remove_columns("completion").add_column("completion", ["no digit"] * 4)
    metrics = tiny_trainer(tmp_path, eval_dataset=words).evaluate()
    assert metrics["eval_log_mae"] == metrics["eval_answer_log_mae"] == 0.0


def test_training_logs_have_no_log_mae(tmp_path):
    """It costs a product more; in training the digit metrics say enough."""
    trainer = tiny_trainer(tmp_path)
    trainer.train()
    assert not [entry for entry in trainer.state.log_history if "log_mae" in entry]
