"""The trainer: one optimiser step is the same however it is cut up, and equals what plain autograd says."""

import math

import pytest
import torch
from datasets import Dataset
from helpers import assert_gradients_equal, sums_dataset, tiny_trainer, train_recorded
from peft import LoraConfig
from tiny import tiny_llama, tiny_tokenizer
from trl import SFTConfig, SFTTrainer

from numsft import NumberVocab, NumSFTConfig, NumSFTTrainer, number_loss
from numsft.errors import RunError
from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES

CUTS = {"4x2": (4, 2), "2x4": (2, 4), "1x8": (1, 8)}
METRICS = (
    "loss",
    "token_loss",
    "number_loss",
    "mean_token_accuracy",
    "entropy",
    "digit_accuracy",
    "digit_entropy",
    "digit_mass",
    "digit_logit",
    "digits_per_step",
)


def full_logits_loss(model, trainer, objective_weight=0.01, loss="del"):
    """Cross-entropy and number loss of the whole training set in one batch, by plain autograd."""
    collate = trainer.data_collator
    batch = collate([trainer.train_dataset[i] for i in range(len(trainer.train_dataset))])
    logits = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
    ).logits
    labels = batch["labels"]
    ce = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
    number = number_loss(logits, labels, NumberVocab.from_tokenizer(tiny_tokenizer()), loss)
    return ce + objective_weight * number, ce, number


def test_a_step_equals_plain_autograd_on_full_logits(tmp_path):
    trainer = tiny_trainer(tmp_path)
    model = tiny_llama(vocab_size=104)
    loss, ce, number = full_logits_loss(model, trainer)
    loss.backward()
    (ours,), (log,) = train_recorded(trainer)
    assert_gradients_equal(ours, {n: p.grad.double() for n, p in model.named_parameters()})
    assert log["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert log["token_loss"] == pytest.approx(ce.item(), rel=1e-5)
    assert log["number_loss"] == pytest.approx(number.item(), rel=1e-5)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_without_a_number_loss_a_step_equals_plain_sft_trainer(tmp_path, lora):
    peft_config = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.0) if lora else None
    ours = tiny_trainer(tmp_path / "ours", number_loss="none", max_steps=2, peft_config=peft_config)
    settings = {
        name: getattr(ours.args, name)
        for name in (
            "max_steps",
            "optim",
            "learning_rate",
            "lr_scheduler_type",
            "max_grad_norm",
            "logging_steps",
        )
    }
    theirs = SFTTrainer(
        model=tiny_llama(vocab_size=104),
        args=SFTConfig(
            output_dir=str(tmp_path / "theirs"),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            seed=0,
            per_device_train_batch_size=8,
            **settings,
        ),
        train_dataset=sums_dataset(),
        processing_class=tiny_tokenizer(),
        peft_config=peft_config,
    )
    our_steps, our_logs = train_recorded(ours)
    their_steps, their_logs = train_recorded(theirs)
    for mine, other in zip(our_steps, their_steps, strict=True):
        assert_gradients_equal(mine, other)
    for mine, other in zip(our_logs, their_logs, strict=True):
        for name in ("loss", "grad_norm", "mean_token_accuracy", "entropy", "num_tokens"):
            assert mine[name] == pytest.approx(other[name], rel=1e-5), name


@pytest.mark.parametrize("batch_size, steps", CUTS.values(), ids=CUTS)
def test_gradient_accumulation_changes_nothing(tmp_path, batch_size, steps):
    # transformers#34191, #35207: the loss used to depend on how a batch is cut into micro-batches.
    whole = train_recorded(tiny_trainer(tmp_path / "whole"))
    cut = train_recorded(
        tiny_trainer(
            tmp_path / "cut", per_device_train_batch_size=batch_size, gradient_accumulation_steps=steps
        )
    )
    assert_gradients_equal(cut[0][0], whole[0][0])
    for name in METRICS:
        assert cut[1][0][name] == pytest.approx(whole[1][0][name], rel=1e-5), name


@pytest.mark.parametrize("name", NUMBER_LOSSES)
@pytest.mark.parametrize("reduction", ["digits", "weights", "tokens"])
def test_every_number_loss_is_the_same_under_accumulation(tmp_path, name, reduction):
    settings = dict(
        number_loss=name, number_loss_weight=1.0, number_reduction=reduction, place_weighting="float"
    )
    whole = train_recorded(tiny_trainer(tmp_path / "whole", **settings))
    cut = train_recorded(
        tiny_trainer(
            tmp_path / "cut", per_device_train_batch_size=2, gradient_accumulation_steps=4, **settings
        )
    )
    assert_gradients_equal(cut[0][0], whole[0][0])
    assert cut[1][0]["loss"] == pytest.approx(whole[1][0]["loss"], rel=1e-5)


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_every_token_loss_is_the_same_under_accumulation(tmp_path, name):
    whole = train_recorded(tiny_trainer(tmp_path / "whole", token_loss=name))
    cut = train_recorded(
        tiny_trainer(
            tmp_path / "cut", per_device_train_batch_size=2, gradient_accumulation_steps=4, token_loss=name
        )
    )
    assert_gradients_equal(cut[0][0], whole[0][0])


def test_reference_reduction_grows_with_the_accumulation_steps_as_the_published_code(tmp_path):
    """Each micro-batch adds its own mean over digits and classes: four of them weigh four times one."""
    dataset = sums_dataset(4).select([0] * 8)  # equal rows, so that every micro-batch has the same mean
    settings = dict(dataset=dataset, number_reduction="reference", number_loss_weight=1.0)
    _, (whole,) = train_recorded(tiny_trainer(tmp_path / "whole", **settings))
    _, (cut,) = train_recorded(
        tiny_trainer(
            tmp_path / "cut", per_device_train_batch_size=2, gradient_accumulation_steps=4, **settings
        )
    )
    _, (digits,) = train_recorded(tiny_trainer(tmp_path / "digits", dataset=dataset, number_loss_weight=1.0))
    assert whole["number_loss"] == pytest.approx(digits["number_loss"] / 10, rel=1e-5)
    assert cut["number_loss"] == pytest.approx(4 * whole["number_loss"], rel=1e-5)
    assert cut["loss"] == pytest.approx(cut["token_loss"] + cut["number_loss"], rel=1e-6)


def test_a_last_partial_accumulation_is_a_step_of_its_own_size(tmp_path):
    # transformers#38837: the last, shorter accumulation used to be divided by the full number of
    # micro-batches.
    dataset = sums_dataset(10)
    trainer = tiny_trainer(
        tmp_path / "cut",
        dataset=dataset,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=2,
    )
    steps, logs = train_recorded(trainer)
    rest = tiny_trainer(
        tmp_path / "rest", dataset=dataset.select([8, 9]), learning_rate=0.1, model=tiny_llama(vocab_size=104)
    )
    first = tiny_trainer(tmp_path / "first", dataset=dataset.select(range(8)), model=rest.model)
    train_recorded(first)  # takes the first step on the same weights
    rest_steps, rest_logs = train_recorded(rest)
    assert_gradients_equal(steps[1], rest_steps[0])
    assert logs[1]["number_loss"] == pytest.approx(rest_logs[0]["number_loss"], rel=1e-5)


def test_ntil_that_scales_itself_depends_on_the_micro_batch(tmp_path):
    """Its factor is the micro-batch's own CE / NTIL, as published: so self_scale is off by default."""
    settings = dict(number_loss="ntil", number_loss_weight=1.0, number_loss_kwargs={"self_scale": True})
    _, (whole,) = train_recorded(tiny_trainer(tmp_path / "whole", **settings))
    _, (cut,) = train_recorded(
        tiny_trainer(
            tmp_path / "cut", per_device_train_batch_size=2, gradient_accumulation_steps=4, **settings
        )
    )
    assert whole["number_loss"] == pytest.approx(whole["token_loss"], rel=1e-4)
    assert abs(cut["grad_norm"] - whole["grad_norm"]) > 1e-2 * whole["grad_norm"]


@pytest.mark.parametrize("name", NUMBER_LOSSES)
def test_every_number_loss_is_the_same_packed(tmp_path, name):
    settings = dict(number_loss=name, number_loss_weight=1.0)
    padded = train_recorded(tiny_trainer(tmp_path / "padded", **settings))
    packed = train_recorded(
        tiny_trainer(tmp_path / "packed", packing=True, packing_strategy="bfd", max_length=64, **settings)
    )
    assert_gradients_equal(packed[0][0], padded[0][0], 2e-5)


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_every_token_loss_is_the_same_packed(tmp_path, name):
    padded = train_recorded(tiny_trainer(tmp_path / "padded", token_loss=name))
    packed = train_recorded(
        tiny_trainer(
            tmp_path / "packed", packing=True, packing_strategy="bfd", max_length=64, token_loss=name
        )
    )
    assert_gradients_equal(packed[0][0], padded[0][0], 2e-5)


@pytest.mark.parametrize("strategy", ["bfd", "padding_free"])
def test_packed_rows_train_like_padded_ones(tmp_path, strategy):
    # trl#1230, torchtune#2613: packed documents saw each other and predicted each other's first token.
    padded = train_recorded(tiny_trainer(tmp_path / "padded"))
    if strategy == "bfd":
        settings = dict(packing=True, packing_strategy="bfd", max_length=64)
    else:
        settings = dict(padding_free=True, max_length=None)
    packed = train_recorded(tiny_trainer(tmp_path / "packed", **settings))
    assert_gradients_equal(packed[0][0], padded[0][0], 2e-5)
    for name in (*METRICS, "num_tokens"):
        assert packed[1][0][name] == pytest.approx(padded[1][0][name], rel=2e-5), name


def test_digits_on_both_sides_of_a_packed_boundary_are_two_numbers(tmp_path):
    # unsloth#8959
    rows = Dataset.from_dict({"input_ids": [[30, 31], [32, 33]], "labels": [[30, 31], [32, 33]]})
    trainer = tiny_trainer(
        tmp_path, dataset=rows, padding_free=True, max_length=None, place_weighting="integer"
    )
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(2)])
    from numsft.microbatch import head_batch

    described = head_batch(batch, trainer.vocab, trainer.objective)
    assert described.labels.tolist() == [31, 33]
    assert described.places.tolist() == [0, 0]
    assert described.numbers.tolist() == [0, 1]


def test_metrics_do_not_depend_on_the_evaluation_batch_size(tmp_path):
    results = []
    for batch_size in (1, 3, 8):
        trainer = tiny_trainer(
            tmp_path / str(batch_size),
            per_device_eval_batch_size=batch_size,
            eval_dataset=sums_dataset(7, seed=5),
        )
        results.append(trainer.evaluate())
    for result in results[1:]:
        for name in METRICS:
            assert result[f"eval_{name}"] == pytest.approx(results[0][f"eval_{name}"], rel=1e-5), name


def test_a_logged_window_is_a_ratio_of_sums_over_its_steps(tmp_path):
    dataset = sums_dataset(12)
    _, per_step = train_recorded(
        tiny_trainer(
            tmp_path / "1", dataset=dataset, per_device_train_batch_size=4, max_steps=3, learning_rate=0.0
        )
    )
    _, (window,) = train_recorded(
        tiny_trainer(
            tmp_path / "3",
            dataset=dataset,
            per_device_train_batch_size=4,
            max_steps=3,
            logging_steps=3,
            learning_rate=0.0,
        )
    )
    digits = [entry["digits_per_step"] for entry in per_step]
    pooled = sum(e["number_loss"] * n for e, n in zip(per_step, digits, strict=True)) / sum(digits)
    assert len(set(digits)) > 1, "the data must have uneven digit counts for this test to say anything"
    assert window["number_loss"] == pytest.approx(pooled, rel=1e-6)
    assert window["digits_per_step"] == pytest.approx(sum(digits) / 3)
    assert window["loss"] == pytest.approx(window["token_loss"] + 0.01 * window["number_loss"], rel=1e-9)


def test_four_steps_equal_two_steps_a_stop_and_two_more(tmp_path):
    # transformers#35850; TRL starts num_tokens again on resume.
    settings = dict(
        dataset=sums_dataset(32), optim="adamw_torch", learning_rate=1e-3, save_strategy="steps", save_steps=2
    )
    _, straight = train_recorded(tiny_trainer(tmp_path / "straight", max_steps=4, **settings))
    tiny_trainer(tmp_path / "cut", max_steps=2, **settings).train()
    resumed = tiny_trainer(tmp_path / "cut", max_steps=4, **settings)
    resumed.train(resume_from_checkpoint=True)
    logs = [entry for entry in resumed.state.log_history if "loss" in entry]
    assert len(logs) == 4
    for mine, other in zip(logs, straight, strict=True):
        for name in (*METRICS, "num_tokens", "grad_norm", "learning_rate"):
            assert mine[name] == pytest.approx(other[name], rel=1e-6), name


def test_a_logging_window_cut_by_a_stop_is_whole_after_resume(tmp_path):
    settings = dict(
        dataset=sums_dataset(32), save_strategy="steps", save_steps=1, logging_steps=2, max_steps=2
    )
    _, (straight,) = train_recorded(tiny_trainer(tmp_path / "straight", **settings))
    tiny_trainer(tmp_path / "cut", **{**settings, "max_steps": 1}).train()
    resumed = tiny_trainer(tmp_path / "cut", **settings)
    resumed.train(resume_from_checkpoint=True)
    logs = [entry for entry in resumed.state.log_history if entry.get("step") == 2 and "loss" in entry]
    for name in (*METRICS, "num_tokens"):
        assert logs[0][name] == pytest.approx(straight[name], rel=1e-6), name


def test_load_best_model_reads_the_pooled_evaluation_loss(tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        max_steps=2,
        eval_dataset=sums_dataset(5, seed=3),
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_digit_entropy",
        greater_is_better=False,
    )
    trainer.train()
    values = [e["eval_digit_entropy"] for e in trainer.state.log_history if "eval_digit_entropy" in e]
    assert trainer.state.best_metric == min(values)


def test_a_batch_without_numbers_trains_on(tmp_path):
    # tum-ai/number-token-loss#73: the mean over no digits was NaN.
    words = Dataset.from_dict({"prompt": ["a="] * 4, "completion": ["yes", "no", "maybe so", "well"]})
    steps, (log,) = train_recorded(tiny_trainer(tmp_path, dataset=words, per_device_train_batch_size=4))
    assert log["number_loss"] == 0 and log["digits_per_step"] == 0 and math.isfinite(log["loss"])
    assert all(gradient.isfinite().all() for gradient in steps[0].values())
    assert "lm_head.weight" in steps[0]


def test_assistant_only_loss_trains_on_assistant_digits_alone(tmp_path):
    chat = Dataset.from_dict(
        {
            "messages": [
                [{"role": "user", "content": f"{i}+10"}, {"role": "assistant", "content": f"{i + 10}"}]
                for i in range(4)
            ]
        }
    )
    _, (log,) = train_recorded(tiny_trainer(tmp_path, dataset=chat, assistant_only_loss=True))
    assert log["digits_per_step"] == 8


def test_completion_only_loss_can_be_turned_off(tmp_path):
    _, (completion,) = train_recorded(tiny_trainer(tmp_path / "a"))
    _, (everything,) = train_recorded(tiny_trainer(tmp_path / "b", completion_only_loss=False))
    assert everything["digits_per_step"] > completion["digits_per_step"]


def test_generation_and_plain_calls_are_the_models_own(tmp_path):
    trainer = tiny_trainer(tmp_path)
    untouched = tiny_llama(vocab_size=104)
    ids = torch.tensor([[30, 31, 80]])
    torch.testing.assert_close(trainer.model(ids, labels=ids).loss, untouched(ids, labels=ids).loss)
    torch.testing.assert_close(
        trainer.model.generate(ids, max_new_tokens=3, do_sample=False),
        untouched.generate(ids, max_new_tokens=3, do_sample=False),
    )


def test_predict_returns_logits(tmp_path):
    # LlamaFactory#8746: an overridden compute_loss used to hand out None for logits.
    trainer = tiny_trainer(tmp_path, per_device_eval_batch_size=3)
    prepared = trainer.train_dataset.select(range(3))
    predictions = trainer.predict(prepared)
    assert predictions.predictions.shape[0] == 3 and predictions.predictions.shape[-1] == 104


@pytest.mark.parametrize("name", ["compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics"])
def test_what_needs_full_logits_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} needs the full logits"):
        NumSFTTrainer(
            tiny_llama(104),
            NumSFTConfig(output_dir=str(tmp_path)),
            **{name: print},
            train_dataset=sums_dataset(),
        )


def test_a_batch_without_labels_is_an_error(tmp_path):
    # transformers#40632: a custom loss used to be skipped silently.
    trainer = tiny_trainer(tmp_path)
    with pytest.raises(ValueError, match="no labels"):
        trainer.compute_loss(trainer.model, {"input_ids": torch.tensor([[30, 31]])})


def test_an_sft_config_becomes_a_num_sft_config_with_the_defaults(tmp_path):
    args = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, learning_rate=3e-4, report_to="none")
    trainer = NumSFTTrainer(
        tiny_llama(104), args, train_dataset=sums_dataset(), processing_class=tiny_tokenizer()
    )
    assert isinstance(trainer.args, NumSFTConfig)
    assert trainer.args.learning_rate == 3e-4 and trainer.objective.number_loss.name == "del"


def test_a_low_digit_logit_is_warned_of_once(tmp_path, caplog):
    train_recorded(tiny_trainer(tmp_path / "del", max_steps=2))
    assert caplog.text.count("mean raw digit logit") == 1
    caplog.clear()
    train_recorded(tiny_trainer(tmp_path / "ntl", number_loss="ntl_was"))
    train_recorded(tiny_trainer(tmp_path / "level", number_loss_kwargs={"level": 5.0}))
    assert "mean raw digit logit" not in caplog.text


@pytest.mark.parametrize("packing", [False, True], ids=["padded", "packed"])
def test_a_non_finite_loss_stops_the_run_and_names_term_step_and_rows(tmp_path, packing):
    rows = sums_dataset(8)
    trainer = tiny_trainer(
        tmp_path,
        dataset=rows.map(
            lambda row, i: {"completion": "Z9" if i == 5 else row["completion"]}, with_indices=True
        ),
        per_device_train_batch_size=1 if packing else 2,
        packing=packing,
        max_length=24,
        max_steps=8,
        save_strategy="steps",
        save_steps=1,
    )
    (bad,) = tiny_tokenizer()("Z")["input_ids"]
    with torch.no_grad():
        trainer.model.model.embed_tokens.weight[bad] = float("nan")
    guilty = [i for i, row in enumerate(trainer.train_dataset["input_ids"]) if bad in row]
    with pytest.raises(RunError) as stopped:
        trainer.train()
    weights = [p for n, p in trainer.model.named_parameters() if n != "model.embed_tokens.weight"]
    assert all(p.isfinite().all() for p in weights), "the broken step must not reach the weights"
    message = str(stopped.value)
    step = trainer.state.global_step + 1
    assert f"step {step} is not finite" in message and "token loss and the number loss" in message
    named = {int(n) for n in message.split("rows ")[1].split(" of the prepared")[0].split(", ")}
    assert set(guilty) <= named and len(named) <= 2
    assert (tmp_path / f"checkpoint-{step - 1}").is_dir()
