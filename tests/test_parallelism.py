"""What the trainer hands to, or refuses from, the frameworks that CPU cannot run: a contract with each."""

import pytest
import torch
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType
from helpers import assert_gradients_equal, sums_dataset, tiny_trainer, train_recorded
from tiny import tiny_llama

from numsft.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(cp_size=2), r"^context parallelism of size 2 is not supported: .* with packing instead\.$"),
        (dict(sp_size=2, sp_backend="deepspeed"), r"^sequence parallelism of size 2 is not supported"),
        (dict(tp_size=2), r"^tensor parallelism of size 2 is not supported"),
    ],
)
@pytest.mark.parametrize("packing", [False, True])
def test_cut_rows_and_heads_are_refused_in_one_sentence_at_the_start(tmp_path, settings, message, packing):
    model = object()  # nothing is done to the model, the data or the process group before
    with pytest.raises(UserError, match=message):
        tiny_trainer(tmp_path, model=model, parallelism_config=ParallelismConfig(**settings), packing=packing)


def test_cut_rows_set_by_the_launcher_are_refused_too(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    with pytest.raises(UserError, match="context parallelism of size 2"):
        tiny_trainer(tmp_path, model=object())


def test_data_parallel_sizes_alone_are_accepted():
    from numsft.trainer import _refuse_sharded_sequences

    _refuse_sharded_sequences(None)
    _refuse_sharded_sequences(ParallelismConfig(dp_shard_size=2))


def test_under_deepspeed_the_step_is_scaled_by_the_counts_of_all_ranks_alone(tmp_path, monkeypatch):
    """DeepSpeed's engine divides by ranks itself, and by the accumulation steps unless told not to."""
    trainer = tiny_trainer(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4)
    batches = list(trainer.get_train_dataloader())
    device = torch.device("cpu")
    (first, second), items = trainer.get_batch_samples(iter(batches), 2, device)
    trainer.current_gradient_accumulation_steps = 2
    alone = sum(trainer.compute_loss(trainer.model, b, num_items_in_batch=items) for b in (first, second))

    handed = []
    accelerator = type(trainer.accelerator)
    monkeypatch.setattr(accelerator, "num_processes", 2)
    monkeypatch.setattr(accelerator, "reduce", lambda self, tensor, reduction: 2 * tensor)
    monkeypatch.setattr(accelerator, "distributed_type", DistributedType.DEEPSPEED)
    monkeypatch.setattr(
        accelerator, "backward", lambda self, loss, **options: handed.append((loss.item(), options))
    )
    _, items = trainer.get_batch_samples(iter(batches), 2, device)
    for batch in (first, second):
        trainer.training_step(trainer.model, dict(batch), items)
    assert [options for _, options in handed] == [{"scale_wrt_gas": False}] * 2
    # N and S are twice as large with a second rank like this one; the engine's mean over ranks takes it back.
    assert sum(loss for loss, _ in handed) == pytest.approx(alone.item(), rel=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "settings", [dict(packing=True, max_length=64), dict(padding_free=True, max_length=None)]
)
def test_packed_rows_train_like_padded_ones_with_each_attention(tmp_path, attention, settings):
    def trained(name, **how):
        model = tiny_llama(104, attn_implementation=attention)
        assert model.config._attn_implementation == attention
        return train_recorded(tiny_trainer(tmp_path / name, model=model, **how))[0][0]

    assert_gradients_equal(trained("packed", **settings), trained("padded"), 2e-5)


def test_flash_attention_gets_the_document_boundaries_of_packed_rows(tmp_path):
    """Its kernels take the boundaries as arguments, and would see through them with a mask or a cache."""
    trainer = tiny_trainer(
        tmp_path, dataset=sums_dataset(4), padding_free=True, max_length=None, per_device_train_batch_size=4
    )
    batch = next(iter(trainer.get_train_dataloader()))
    rows = [len(row) for row in trainer.train_dataset["input_ids"]]
    seen = {}
    backbone = trainer.model.model
    backbone.register_forward_pre_hook(lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True)
    trainer.compute_loss(trainer.model, batch)
    boundaries = torch.tensor([0, *rows]).cumsum(0).tolist()
    assert seen["cu_seq_lens_q"].tolist() == seen["cu_seq_lens_k"].tolist() == boundaries
    assert seen["cu_seq_lens_q"].dtype == torch.int32
    assert seen["max_length_q"] == seen["max_length_k"] == max(rows)
    assert seen["use_cache"] is False and seen.get("attention_mask") is None
