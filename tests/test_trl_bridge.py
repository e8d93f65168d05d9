"""The head inside real architectures against their own logits; the contract with TRL and transformers."""

import inspect

import pytest
import torch
from helpers import sums_dataset, tiny_trainer, train_recorded
from peft import LoraConfig, get_peft_model
from tiny import tiny_llama, tiny_tokenizer
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from numsft import NumberVocab, number_loss
from numsft.microbatch import head_batch
from numsft.objective import Objective
from numsft.trl_bridge import HeadCall, attach_head, base_model_of, check_head, logit_transform

VOCAB = NumberVocab.from_tokenizer(tiny_tokenizer())
DEL = Objective.build("ce", "del")
SIZES = dict(
    vocab_size=104,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    pad_token_id=2,
    bos_token_id=None,
    eos_token_id=1,
)


def make(config_class, model_class, **extra):
    torch.manual_seed(0)
    model = model_class(config_class(**{**SIZES, **extra}))
    if model.get_output_embeddings().bias is not None:
        nn.init.normal_(model.get_output_embeddings().bias)
    return model


MODELS = {
    "llama, untied": lambda: tiny_llama(104),
    "llama, tied": lambda: tiny_llama(104, tied=True),
    "llama, head wider than the tokenizer": lambda: tiny_llama(256),
    "mistral": lambda: make(MistralConfig, MistralForCausalLM, tie_word_embeddings=False),
    "qwen2, tied": lambda: make(Qwen2Config, Qwen2ForCausalLM, tie_word_embeddings=True),
    "gemma2, soft-capped": lambda: make(
        Gemma2Config, Gemma2ForCausalLM, head_dim=8, final_logit_softcapping=0.5, query_pre_attn_scalar=8
    ),
    "cohere, multiplied": lambda: make(CohereConfig, CohereForCausalLM, logit_scale=0.0625),
    "granite, divided": lambda: make(GraniteConfig, GraniteForCausalLM, logits_scaling=8.0),
    "phi, with a bias": lambda: make(PhiConfig, PhiForCausalLM),
}


def example(width=100):
    """Labels with digits, ignored gaps, a pad and a row without a digit."""
    rows = ["12.5+7=19.5", "no digits", "7", "3,141 is 59"]
    ids = tiny_tokenizer()(rows, padding=True, return_tensors="pt")
    labels = ids["input_ids"].masked_fill(ids["attention_mask"] == 0, -100)
    labels[0, :4] = -100
    return {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"], "labels": labels}


def oracle(model, inputs):
    """The model's own logits, cross-entropy and DEL by plain autograd."""
    logits = model(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
    ).logits
    labels = inputs["labels"]
    ce = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
    return ce + DEL.weight * number_loss(logits, labels, VOCAB, "del")


def chunked(model, inputs, chunk_size=5):
    batch = head_batch(inputs, VOCAB, DEL)
    return model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        use_cache=False,
        head_call=HeadCall(batch, DEL, chunk_size),
    )["loss"]


def gradients(loss, model):
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return dict(zip(parameters, grads, strict=True))


def assert_same(model, tolerance=1e-5):
    inputs = example()
    expected = oracle(model, inputs)
    expected_gradients = gradients(expected, model)
    attach_head(base_model_of(model))
    loss = chunked(model, inputs)
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance)
    for name, gradient in gradients(loss, model).items():
        theirs = expected_gradients[name]
        assert (gradient is None) == (theirs is None), name
        if theirs is not None:
            assert (gradient - theirs).norm() <= tolerance * theirs.norm().clamp(min=1e-8), name


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_full_training_equals_the_models_own_logits(build):
    assert_same(build())


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_lora_training_equals_the_models_own_logits(build):
    model = get_peft_model(
        build(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    )
    assert_same(model)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_head_trained_beside_lora_equals_the_models_own_logits(tied):
    model = get_peft_model(
        tiny_llama(104, tied=tied),
        LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], init_lora_weights=False),
    )
    trained = [name for name, p in model.named_parameters() if p.requires_grad and "lm_head" in name]
    assert trained, "the head must be trained for this test to say anything"
    assert_same(model)


def test_a_frozen_head_gets_no_gradient():
    model = tiny_llama(104)
    model.lm_head.requires_grad_(False)
    assert_same(model)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_changes_nothing(reentrant):
    model = tiny_llama(104)
    model.train()
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    inputs = example()
    expected = oracle(model, inputs)
    expected.backward()
    expected_gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    attach_head(model)
    chunked(model, inputs).backward()
    for name, parameter in model.named_parameters():
        theirs = expected_gradients[name]
        assert (parameter.grad - theirs).norm() <= 1e-5 * theirs.norm(), name


def test_bfloat16_autocast_is_as_close_to_float32_as_the_models_own_logits():
    model, inputs = tiny_llama(104), example()
    exact = gradients(oracle(model, inputs), model)
    with torch.autocast("cpu", torch.bfloat16):
        plain = gradients(oracle(model, inputs), model)
    attach_head(model)
    with torch.autocast("cpu", torch.bfloat16):
        ours = gradients(chunked(model, inputs), model)
    for name in exact:
        ours_error = (ours[name] - exact[name]).norm() / exact[name].norm()
        plain_error = (plain[name] - exact[name]).norm() / exact[name].norm()
        assert ours_error <= max(1.5 * plain_error, 0.01), name


def test_prompt_tuning_ignores_its_virtual_tokens():
    from peft import PromptTuningConfig

    model = get_peft_model(tiny_llama(104), PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"))
    inputs = example()
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, 3:]
    labels = inputs["labels"]
    ce = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    expected = ce + DEL.weight * number_loss(logits, labels, VOCAB, "del")
    attach_head(base_model_of(model))
    torch.testing.assert_close(chunked(model, inputs), expected, rtol=1e-5, atol=0)


def test_an_adapter_on_the_head_is_refused_with_the_way_out():
    # trl#6159: such an adapter was silently not trained.
    model = get_peft_model(tiny_llama(104), LoraConfig(r=4, target_modules=["lm_head"]))
    with pytest.raises(ValueError, match=r"lora_modules_to_save: \[lm_head\]"):
        check_head(model, 40)


def test_a_head_too_narrow_for_the_number_tokens_is_refused():
    # ntloss#19: len(tokenizer) and the head's width differ in both directions.
    with pytest.raises(ValueError, match="has 64 rows but the tokenizer's number tokens reach id 70"):
        check_head(tiny_llama(64), 70)
    check_head(tiny_llama(64), 39)


def test_a_head_narrower_than_the_tokenizer_trains_when_its_number_tokens_fit(tmp_path):
    model = tiny_llama(100)  # the tokenizer has 100 tokens and one more is added
    trainer = tiny_trainer(tmp_path, model=model, dataset=sums_dataset(4))
    _, (log,) = train_recorded(trainer)
    assert log["digits_per_step"] > 0


def test_a_mixture_of_experts_keeps_its_router_loss(tmp_path):
    model = make(MixtralConfig, MixtralForCausalLM, num_local_experts=4, output_router_logits=True)
    trainer = tiny_trainer(tmp_path, model=model, router_aux_loss_coef=0.1)
    _, (log,) = train_recorded(trainer)
    assert log["aux_loss"] > 0
    expected = log["token_loss"] + 0.01 * log["number_loss"] + log["aux_loss"]
    assert log["loss"] == pytest.approx(expected, rel=1e-9)


def test_contract_every_architecture_that_changes_its_logits_is_read():
    """Fails when transformers adds a family whose logits are scaled or capped by a key not read here."""
    scaled = {name: logit_transform(build().config) for name, build in MODELS.items()}
    assert scaled["cohere, multiplied"].scale == 0.0625
    assert scaled["granite, divided"].scale == 0.125
    assert scaled["gemma2, soft-capped"].softcap == 0.5
    assert scaled["mistral"].is_identity


def test_contract_trl_and_transformers_hold_what_is_overridden():
    from transformers import Trainer
    from trl import SFTTrainer
    from trl.trainer import utils

    assert "num_items_in_batch" in inspect.signature(SFTTrainer.compute_loss).parameters
    assert list(inspect.signature(Trainer.get_batch_samples).parameters) == [
        "self",
        "epoch_iterator",
        "num_batches",
        "device",
    ]
    for name in (
        "evaluation_loop",
        "prediction_step",
        "_save_checkpoint",
        "_save",
        "log",
        "create_model_card",
    ):
        assert callable(getattr(SFTTrainer, name)), name
    assert Trainer.loss_is_scaled_for_ga is None
    assert callable(utils.maybe_gather_lm_head_ctx) and callable(utils.add_fused_lm_head)
