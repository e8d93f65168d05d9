"""The memory estimate: counts as published, parts computed by hand, measured peaks, and what it suggests."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import GPT2Config, LlamaConfig, MixtralConfig, Qwen2Config, Qwen3Config

from numsft.errors import UserError
from numsft.memory import (
    Lora,
    ModelShape,
    Plan,
    Setup,
    check_fits,
    estimate,
    lora_targets,
    memory_report,
    nearest_fit,
    plan_from_accelerate,
    report_lines,
    setup_of,
)
from numsft.memory.fit import GIB, usable_bytes
from numsft.memory.layers import layer_bytes
from numsft.recipes import load_recipe

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "accelerate_configs"
QWEN_7B = ModelShape(28, 3584, 18944, 28, 4, 152064, False)
QWEN_1B = ModelShape(28, 1536, 8960, 12, 2, 151936, True)
MISTRAL_7B = ModelShape(32, 4096, 14336, 32, 8, 32000, False)
CODELLAMA_7B = ModelShape(32, 4096, 11008, 32, 32, 32016, False)
DEEPSEEK_MATH_7B = ModelShape(30, 4096, 11008, 32, 32, 102400, False)
ALL = lora_targets("all-linear")
SHAPE_LINES = """
shape:
  layers: 28
  hidden: 3584
  intermediate: 18944
  heads: 28
  kv_heads: 4
  vocabulary: 152064
  tied: false
"""


def recipe(tmp_path, text="", overrides=()):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        f"model_name_or_path: some/model\noutput_dir: {tmp_path / 'out'}\nmax_length: 2048\n"
        f"per_device_train_batch_size: 1\nactivation_checkpointing: true\n{text}"
    )
    return load_recipe(path, overrides)


# --- counts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (QWEN_7B, 7_615_616_512),
        (QWEN_1B, 1_543_714_304),
        (MISTRAL_7B, 7_241_732_096),
        (CODELLAMA_7B, 6_738_546_688),
        (DEEPSEEK_MATH_7B, 6_910_365_696),
    ],
)
def test_parameters_are_those_of_the_published_models(shape, published):
    assert shape.parameters == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(
            vocab_size=500,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        Qwen2Config(
            vocab_size=500,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
    ],
    ids=["llama", "qwen2, tied"],
)
def test_parameters_of_a_configuration_are_counted_exactly(config):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config)
    assert ModelShape.from_config(config).parameters == model.num_parameters()


def test_a_head_width_of_its_own_is_read_from_the_configuration():
    config = Qwen3Config(hidden_size=64, num_attention_heads=4, head_dim=32, num_key_value_heads=2)
    shape = ModelShape.from_config(config)
    assert (shape.query, shape.key) == (128, 64)


def test_an_adapter_on_all_linear_maps_has_the_parameters_that_peft_reports():
    # Mistral-7B, r = 16, all linear maps: 41,943,040 (PEFT's print_trainable_parameters).
    assert Lora(16, ALL).parameters(MISTRAL_7B) == 41_943_040
    assert Lora(8, lora_targets(["q_proj", "v_proj"])).parameters(CODELLAMA_7B) == 4_194_304


@pytest.mark.parametrize(
    ("wanted", "targets"),
    [
        (None, ("q_proj", "v_proj")),
        ("all-linear", ALL),
        (["down_proj", "self_attn.q_proj"], ("q_proj", "down_proj")),
        (r".*\.(up|down)_proj", ("up_proj", "down_proj")),
        ("o_proj", ("o_proj",)),
    ],
)
def test_targets_are_matched_as_peft_matches_them(wanted, targets):
    assert lora_targets(wanted, "qwen2") == targets


# --- parts ------------------------------------------------------------------------------------------------


def test_full_fine_tuning_in_float32_keeps_sixteen_bytes_a_parameter():
    needed = estimate(QWEN_7B, Setup(1, 2048))
    assert needed.parameters == needed.gradients == 4 * QWEN_7B.parameters
    assert needed.optimiser == 8 * QWEN_7B.parameters


@pytest.mark.parametrize(
    ("kind", "parameters", "gradients", "optimiser"),
    [  # bytes a parameter on each of 8 GPUs, as in the ZeRO paper (arXiv 1910.02054, figure 1) for bf16
        ("ddp", 4, 4, 8),
        ("zero2", 2, 2 / 8, 12 / 8),
        ("zero3", 2 / 8, 2 / 8, 12 / 8),
        ("fsdp2", 4 / 8, 4 / 8, 8 / 8),
    ],
)
def test_sharding_divides_what_it_divides(kind, parameters, gradients, optimiser):
    needed = estimate(QWEN_7B, Setup(1, 2048, kind=kind, gpus=8))
    count = QWEN_7B.parameters
    assert needed.parameters == pytest.approx(parameters * count)
    assert needed.gradients == pytest.approx(gradients * count)
    assert needed.optimiser == pytest.approx(optimiser * count)


def test_ddp_keeps_a_second_copy_of_the_gradients_in_its_buckets():
    alone, copied = (estimate(QWEN_7B, Setup(1, 2048, kind=kind, gpus=8)) for kind in ("none", "ddp"))
    assert copied.total - alone.total == 4 * QWEN_7B.parameters


def test_fsdp2_keeps_whole_gradients_between_micro_batches_unless_it_reduces_each():
    # accelerate's `no_sync` on FSDP2 defers the reduction, so unreduced bf16 gradients stay on each GPU.
    setup = Setup(1, 2048, kind="fsdp2", gpus=8, accumulation=4)
    assert estimate(QWEN_7B, setup).gradients == 2 * QWEN_7B.parameters
    reduced = dataclasses.replace(setup, sync_each_batch=True)
    assert estimate(QWEN_7B, reduced).gradients == 4 * QWEN_7B.parameters // 8


def test_a_layer_keeps_what_a_count_by_hand_gives():
    # float32, one row of 2 tokens, no mask; per token: two norms of input, normed and output; q, k, v, context
    # and log-sums; gate, silu(gate), up and their product.
    shape = ModelShape(1, 8, 12, 4, 2, 100, False)
    setup = Setup(1, 2, checkpointing=False, mixed=False, device="cpu")
    numbers = 2 * 3 * 8 + (8 + 4 + 4 + 8 + 4) + 4 * 12
    assert layer_bytes(shape, setup) == 4 * 2 * numbers


def test_eager_attention_keeps_its_scores_and_sdpa_does_not():
    sdpa, eager = (Setup(1, 4096, checkpointing=False, attention=name) for name in ("sdpa", "eager"))
    difference = layer_bytes(QWEN_7B, eager) - layer_bytes(QWEN_7B, sdpa)
    scores = 6 * 28 * 4096**2
    assert difference == pytest.approx(scores, rel=0.02)


def test_quantised_weights_take_half_a_byte_and_their_scales():
    lora = Lora(16, ALL)
    needed = estimate(QWEN_7B, Setup(1, 2048, lora=lora, weight_bytes=2, quantised=4))
    linear = 28 * QWEN_7B.layer_matrix_parameters
    rest = QWEN_7B.parameters - linear
    expected = linear * (0.5 + 4 / 64) + 2 * rest + 2 * lora.parameters(QWEN_7B)
    assert needed.parameters == pytest.approx(expected)


@pytest.mark.parametrize(
    ("optimiser", "width"),
    [
        ("adamw_torch_fused", 8),
        ("adamw_torch", 8),
        ("sgd", 0),
        ("adamw_8bit", 2 * (1 + 4 / 256)),
        ("adafactor", 0),
    ],
)
def test_optimiser_state_a_trained_parameter(optimiser, width):
    needed = estimate(QWEN_1B, Setup(1, 512, optimiser=optimiser))
    assert needed.optimiser == pytest.approx(width * QWEN_1B.parameters)


def test_a_frozen_head_has_no_gradient():
    lora = Lora(16, ALL)
    trained = dataclasses.replace(lora, saved=("lm_head",))
    frozen, saved = (estimate(QWEN_7B, Setup(1, 2048, lora=each)) for each in (lora, trained))
    assert saved.head - frozen.head >= 4 * QWEN_7B.head_parameters


def test_the_peak_is_the_sum_of_its_parts():
    needed = estimate(QWEN_7B, Setup(1, 2048, kind="fsdp2", gpus=8))
    peak = needed.peak
    parts = (peak.parameters, peak.gradients, peak.optimiser, peak.activations, peak.head, peak.other)
    assert needed.total == sum(parts)
    assert all(
        getattr(needed, f.name) >= getattr(peak, f.name) for f in dataclasses.fields(peak) if f.name != "name"
    )


# --- measured ---------------------------------------------------------------------------------------------

MODEL = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
SMALL = {**MODEL, "num_hidden_layers": 4, "vocab_size": 16000}
LORA = {"r": 16, "target_modules": "all-linear"}
CHECKPOINTING = {"activation_checkpointing": True}


def measured_peak(tmp_path, model, batch, length, lora, settings) -> int:
    """Peak of a fresh process above what it had before the model, in bytes."""
    spec = {
        "folder": str(tmp_path),
        "model": model,
        "length": length,
        "lora": lora,
        "settings": {
            "per_device_train_batch_size": batch,
            "optim": "adamw_torch_fused",
            "activation_checkpointing": False,
            **settings,
        },
    }
    # Without these glibc keeps freed tensors for itself, and the process's peak is not the tensors'.
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    script = Path(__file__).parent / "scripts" / "measure_memory.py"
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(spec)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(json.loads(done.stdout.splitlines()[-1])["peak"])


def estimated_peak(model, batch, length, lora, settings) -> int:
    shape = ModelShape.from_config(LlamaConfig(**{"tie_word_embeddings": False, **model}))
    if model.get("tied"):
        shape = dataclasses.replace(shape, tied=True)
    adapter = None
    if lora is not None:
        adapter = Lora(lora["r"], lora_targets(lora["target_modules"]), lora.get("lora_dropout", 0.0))
    setup = Setup(
        batch=batch,
        length=length,
        accumulation=settings.get("gradient_accumulation_steps", 1),
        checkpointing=settings.get("activation_checkpointing", False),
        lora=adapter,
        mixed=settings.get("bf16", False),
        optimiser=settings.get("optim", "adamw_torch_fused"),
        attention="eager"
        if model.get("attn_implementation") == "eager"
        else "flash",  # rows are equally long
        device="cpu",
    )
    return estimate(shape, setup).total


on_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")


@on_linux
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_the_estimate_is_within_15_percent_of_a_small_model(tmp_path, lora):
    case = (SMALL, 2, 512, lora, {})
    assert estimated_peak(*case) == pytest.approx(measured_peak(tmp_path, *case), rel=0.15)


CASES = {  # what differs from the model, the tokens and the settings above: model, (rows, tokens), lora, settings
    "full": ({}, (4, 512), None, {}),
    "full, checkpointing": ({}, (4, 512), None, CHECKPOINTING),
    "lora": ({}, (4, 512), LORA, {}),
    "lora, checkpointing": ({}, (4, 512), LORA, CHECKPOINTING),
    "lora, dropout": ({}, (4, 512), {**LORA, "lora_dropout": 0.05}, {}),
    "lora, two targets": ({}, (4, 512), {"r": 16, "target_modules": ["q_proj", "v_proj"]}, {}),
    "full, accumulation": ({}, (4, 512), None, {"gradient_accumulation_steps": 2, **CHECKPOINTING}),
    "full, tied": ({"tied": True}, (4, 512), None, CHECKPOINTING),
    "full, grouped queries": ({"num_key_value_heads": 2}, (4, 512), None, {}),
    "full, eager": ({"attn_implementation": "eager"}, (4, 512), None, {}),
    "full, sgd": ({}, (4, 512), None, {"optim": "sgd"}),
    "full, autocast": ({}, (4, 512), None, {"bf16": True, "use_cpu": True}),
    "full, autocast, checkpointing": ({}, (4, 512), None, {"bf16": True, "use_cpu": True, **CHECKPOINTING}),
    "lora, autocast": ({}, (4, 512), LORA, {"bf16": True, "use_cpu": True}),
    "short rows": ({}, (1, 64), None, {}),
    "short rows, accumulation": ({}, (1, 64), None, {"gradient_accumulation_steps": 2}),
    "short rows, unfused": ({}, (1, 64), None, {"optim": "adamw_torch"}),
    "short rows, adafactor": ({}, (1, 64), None, {"optim": "adafactor"}),
}


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_within_15_percent_of_the_measured_peak(tmp_path, name):
    model, (rows, tokens), lora, settings = CASES[name]
    case = ({**MODEL, **model}, rows, tokens, lora, settings)
    assert estimated_peak(*case) == pytest.approx(measured_peak(tmp_path, *case), rel=0.15)


# --- what fits --------------------------------------------------------------------------------------------


def test_full_fine_tuning_of_7b_on_one_gpu_is_refused_with_a_setting_that_fits():
    needed = estimate(QWEN_7B, Setup(1, 2048))
    with pytest.raises(UserError) as refused:
        check_fits(needed)
    message = str(refused.value)
    assert "\n" not in message and len(message) <= 900
    assert "`accelerate_configs/fsdp2.yaml`" in message and "use_peft" in message
    assert f"{needed.total / GIB:.1f}" in message
    nearest, without_more_gpus = nearest_fit(QWEN_7B, needed.setup)
    for fit in (nearest, without_more_gpus):
        check_fits(estimate(QWEN_7B, fit.setup))
    assert without_more_gpus.setup.gpus == 1


def test_fsdp2_on_eight_gpus_fits_full_fine_tuning_of_7b():
    needed = estimate(QWEN_7B, Setup(1, 2048, kind="fsdp2", gpus=8, accumulation=32))
    check_fits(needed)


@pytest.mark.parametrize(
    ("setup", "changes"),
    [
        (
            Setup(4, 2048, checkpointing=False, lora=Lora(16, ALL, 0.05), weight_bytes=2),
            ("`activation_checkpointing: true`",),
        ),
        (
            Setup(64, 2048, lora=Lora(16, ALL, 0.05), weight_bytes=2),
            ("`per_device_train_batch_size: 32`", "`gradient_accumulation_steps: 2`"),
        ),
        (Setup(1, 2048, kind="ddp", gpus=8), ("`accelerate_configs/fsdp2.yaml`",)),
    ],
    ids=["checkpointing", "smaller batch", "sharding"],
)
def test_the_nearest_setting_changes_least(setup, changes):
    memory = 60 if setup.lora is not None else 80
    nearest = nearest_fit(QWEN_7B, setup, memory)[0]
    assert nearest.changes == changes
    assert nearest.setup.batch * nearest.setup.accumulation * nearest.setup.gpus == (
        setup.batch * setup.accumulation * setup.gpus
    )
    assert estimate(QWEN_7B, nearest.setup).total <= usable_bytes(memory)


def test_where_nothing_fits_it_says_so():
    with pytest.raises(UserError, match="shorten max_length"):
        check_fits(estimate(QWEN_7B, Setup(1, 1_000_000, kind="fsdp2", gpus=8)))


def test_a_smaller_gpu_memory_leaves_its_margin():
    assert usable_bytes(80) == pytest.approx(80 * 2**30 * 0.94)


# --- launches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("cpu", Plan("none", 1, "no", cpu=True)),
        ("single_gpu", Plan("none", 1, "bf16")),
        ("ddp", Plan("ddp", 8, "bf16")),
        ("fsdp2", Plan("fsdp2", 8, "bf16")),
        ("zero2", Plan("zero2", 8, "bf16")),
        ("zero3", Plan("zero3", 8, "bf16")),
        ("multi_node_fsdp2", Plan("fsdp2", 16, "bf16")),
    ],
)
def test_plans_of_our_own_files(name, plan):
    assert plan_from_accelerate(CONFIGS / f"{name}.yaml") == plan


def test_gpus_override_the_file():
    assert plan_from_accelerate(CONFIGS / "fsdp2.yaml", gpus=4).processes == 4
    assert plan_from_accelerate(CONFIGS / "single_gpu.yaml", gpus=2) == Plan("ddp", 2, "bf16")
    assert plan_from_accelerate(CONFIGS / "ddp.yaml", gpus=1) == Plan("none", 1, "bf16")


def test_a_deepspeed_file_of_its_own_is_read(tmp_path):
    zero = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    (tmp_path / "ds.json").write_text(json.dumps(zero))
    (tmp_path / "launch.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    plan = plan_from_accelerate(tmp_path / "launch.yaml")
    assert (plan.kind, plan.processes, plan.offload) == ("zero3", 4, ("optimiser",))
    needed = estimate(QWEN_7B, Setup(1, 2048, kind="zero3", gpus=4, offload=plan.offload))
    assert needed.optimiser == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "no distributed_type"),
        ("{", "neither YAML nor JSON"),
        ("distributed_type: MEGATRON_LM\n", "MEGATRON_LM"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1}\n", "zero_stage is 1"),
        ("distributed_type: FSDP\nnum_processes: -1\n", "--gpus"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        plan_from_accelerate(path)
    with pytest.raises(UserError, match="cannot be read"):
        plan_from_accelerate(tmp_path / "missing.yaml")


# --- recipes ----------------------------------------------------------------------------------------------


def test_the_report_of_a_recipe_with_a_shape(tmp_path):
    lines = memory_report(recipe(tmp_path, SHAPE_LINES), accelerate_config=CONFIGS / "fsdp2.yaml")
    text = "\n".join(lines)
    for part in ("parameters", "gradients", "optimiser", "activations", "head", "total"):
        assert part in text
    assert "Full fine-tuning, fsdp2 on 8 GPUs, 1 x 2048 tokens" in text


def test_a_recipe_that_does_not_fit_is_refused_where_a_launch_is_named_and_reported_where_none_is(tmp_path):
    large = recipe(tmp_path, SHAPE_LINES)
    with pytest.raises(UserError, match="nearest setting"):
        memory_report(large, accelerate_config=CONFIGS / "single_gpu.yaml")
    assert any("total" in line for line in memory_report(large))


def test_gpu_memory_decides(tmp_path):
    wide = recipe(tmp_path, SHAPE_LINES)
    memory_report(wide, accelerate_config=CONFIGS / "fsdp2.yaml", gpu_memory=80)
    with pytest.raises(UserError):
        memory_report(wide, accelerate_config=CONFIGS / "fsdp2.yaml", gpu_memory=16)


def test_without_configuration_or_shape_a_line_says_that_nothing_was_estimated(tmp_path):
    (line,) = memory_report(recipe(tmp_path), accelerate_config=CONFIGS / "fsdp2.yaml")
    assert "not estimated" in line and "`shape`" in line


@pytest.mark.parametrize("config", [GPT2Config(), MixtralConfig()], ids=["gpt2", "mixtral"])
def test_models_of_another_build_are_not_guessed(tmp_path, config):
    (line,) = memory_report(recipe(tmp_path), config)
    assert "not estimated" in line and config.model_type in line


def test_the_configuration_wins_over_the_shape_block(tmp_path):
    config = LlamaConfig(
        vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    lines = memory_report(
        recipe(tmp_path, SHAPE_LINES), config, accelerate_config=CONFIGS / "single_gpu.yaml"
    )
    assert "0.0" in next(line for line in lines if line.startswith("parameters"))


def test_a_recipe_becomes_its_setup(tmp_path):
    text = (
        "use_peft: true\nlora_r: 8\nlora_target_modules: all-linear\nlora_modules_to_save: [lm_head]\n"
        "gradient_accumulation_steps: 4\ndtype: bfloat16\nbf16: true\nattn_implementation: eager\n"
        "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}\n"
    )
    plan = plan_from_accelerate(CONFIGS / "fsdp2.yaml")
    setup = setup_of(recipe(tmp_path, text), plan, longest_row=700)
    assert setup == Setup(
        batch=1,
        length=700,
        accumulation=4,
        lora=Lora(8, ALL, 0.05, ("lm_head",)),
        weight_bytes=2,
        attention="eager",
        kind="fsdp2",
        gpus=8,
        sync_each_batch=True,
    )


def test_bf16_is_what_a_gpu_would_do_not_what_this_machine_settled(tmp_path):
    plan = plan_from_accelerate(CONFIGS / "single_gpu.yaml")
    assert setup_of(recipe(tmp_path, "bf16: true\n"), plan).mixed
    assert setup_of(recipe(tmp_path), plan).mixed
    off = dataclasses.replace(plan, mixed_precision="no")
    assert not setup_of(recipe(tmp_path, "bf16: false\n"), off).mixed


def test_packed_rows_are_full(tmp_path):
    plan = plan_from_accelerate(CONFIGS / "single_gpu.yaml")
    packed = setup_of(recipe(tmp_path, "packing: true\n"), plan, longest_row=100)
    assert (packed.length, packed.packed) == (2048, True)
    assert setup_of(recipe(tmp_path), plan, longest_row=100).length == 100


def test_lines_give_each_part_at_its_largest_and_at_the_peak():
    lines = report_lines(estimate(QWEN_7B, Setup(1, 2048, kind="fsdp2", gpus=8)))
    assert len(lines) == 9
    assert lines[2].split()[:3] == ["parameters", "3.5", "3.5"]
    assert "75.2 of 80" in lines[-1]
