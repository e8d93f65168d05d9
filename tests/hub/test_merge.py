"""Merging: the model on the disk gives the logits of base and adapter, whatever the adapter is made of."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from test_models import write_gguf
from tiny import tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM

from numsft.errors import RunError, UserError
from numsft.hub.__main__ import main
from numsft.hub.merge import merge_adapter

IDS = torch.arange(3, 43)[None]
ATTENTION = ["q_proj", "v_proj"]
KINDS = {
    "LoRA": dict(target_modules=ATTENTION),
    "rsLoRA on all": dict(target_modules="all-linear", use_rslora=True),
    "DoRA": dict(target_modules=ATTENTION, use_dora=True),
    "trained head": dict(target_modules=ATTENTION, modules_to_save=["lm_head"]),
    "trained embedding": dict(target_modules=ATTENTION, modules_to_save=["embed_tokens"]),
    "adapted embedding": dict(target_modules=[*ATTENTION, "embed_tokens"]),
    "adapted head": dict(target_modules=[*ATTENTION, "lm_head"]),
    "adapted head and embedding": dict(target_modules=[*ATTENTION, "embed_tokens", "lm_head"]),
    "head and embedding": dict(target_modules=ATTENTION, modules_to_save=["lm_head", "embed_tokens"]),
}


def logits(model):
    with torch.no_grad():
        return model(IDS).logits.float()


def trained_adapter(folder, base, **config):
    """An adapter of random weights that change the logits a good deal, as PEFT saves it."""
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, init_lora_weights=False, **config)
    )
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape).to(parameter.dtype)
    model.save_pretrained(folder)
    return folder


def saved_base(folder, *, tied=False, dtype=torch.float32):
    tiny_llama(vocab_size=128, tied=tied).to(dtype).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`")
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_model_gives_the_adapters_logits(tmp_path, kind, tied):
    # peft#2018, transformers#45127, LlamaFactory#10832: tied embeddings came back changed or unmerged
    base = saved_base(tmp_path / "base", tied=tied)
    adapter = trained_adapter(tmp_path / "adapter", base, **KINDS[kind])
    report = merge_adapter(adapter, tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(base)
    effect = logits(plain)
    wanted = logits(PeftModel.from_pretrained(plain, adapter).eval())
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(logits(merged), wanted, rtol=0, atol=1e-5)
    assert (wanted - effect).abs().max() > 0.05  # the adapter does something
    assert report.difference < 1e-5 and report.dtype == "float32"
    assert merged.config.tie_word_embeddings is report.tied
    if not tied or "head" in kind or "embedding" in kind:
        assert not report.tied
    else:
        assert report.tied and merged.lm_head.weight is merged.model.embed_tokens.weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["LoRA", "trained head"])
def test_it_is_saved_in_the_precision_of_the_base(tmp_path, dtype, kind):
    base = saved_base(tmp_path / "base", dtype=dtype)
    adapter = trained_adapter(tmp_path / "adapter", base, **KINDS[kind])
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file({name: w.float() for name, w in weights.items()}, adapter / "adapter_model.safetensors")
    report = merge_adapter(adapter, tmp_path / "merged")
    saved = load_file(tmp_path / "merged" / "model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {dtype}
    assert report.dtype == str(dtype).removeprefix("torch.")
    # Each weight is that of a merge in float32, rounded once.
    exact = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    exact = PeftModel.from_pretrained(exact, adapter).merge_and_unload().state_dict()
    for name, weight in saved.items():
        assert torch.equal(weight, exact[name].to(dtype)), name


def test_a_gguf_base_is_found_in_the_recipe_and_leaves_no_quantisation(tmp_path):
    original = tiny_llama(vocab_size=128)
    (tmp_path / "base").mkdir()
    write_gguf(tmp_path / "base" / "tiny.gguf", original)
    tiny_tokenizer().save_pretrained(tmp_path / "base")
    model = get_peft_model(original, LoraConfig(r=4, target_modules=ATTENTION, init_lora_weights=False))
    model.peft_config["default"].base_model_name_or_path = "somebody/some-model"  # what the card says
    adapter = tmp_path / "adapter"
    model.save_pretrained(adapter)
    tiny_tokenizer().save_pretrained(adapter)
    (adapter / "resolved.yaml").write_text(
        f"model_name_or_path: {tmp_path / 'base'}\ngguf_file: tiny.gguf\nbase_model_id: somebody/some-model\n"
    )
    merge_adapter(adapter, tmp_path / "merged")
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert "quantization_config" not in config
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(logits(merged), logits(model.eval()), rtol=0, atol=1e-5)
    assert "somebody/some-model" in (tmp_path / "merged" / "README.md").read_text()


def test_a_checkpoint_can_be_merged(tmp_path):
    base = saved_base(tmp_path / "base")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "resolved.yaml").write_text(f"model_name_or_path: {base}\n")
    adapter = trained_adapter(tmp_path / "out" / "checkpoint-3", base, **KINDS["LoRA"])
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "somebody/some-model"  # as for a package: base
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert merge_adapter(adapter, tmp_path / "merged").difference < 1e-5


def test_the_command_says_what_it_made(tmp_path, capsys):
    adapter = trained_adapter(tmp_path / "adapter", saved_base(tmp_path / "base", tied=True), **KINDS["LoRA"])
    before = {path: path.read_bytes() for path in adapter.iterdir()}
    assert main(["merge", str(adapter), "--output_dir", str(tmp_path / "new" / "merged")]) == 0
    printed = capsys.readouterr().out
    assert "float32" in printed and "tied" in printed
    assert {path: path.read_bytes() for path in adapter.iterdir()} == before
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["merged"]
    assert (tmp_path / "new" / "merged" / "tokenizer.json").is_file()


def refused(capsys, *arguments):
    capsys.readouterr()
    assert main(["merge", *map(str, arguments)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and len(printed.splitlines()) == 1
    return printed


def test_a_folder_that_is_no_adapter_is_refused(tmp_path, capsys):
    base = saved_base(tmp_path / "base")
    assert "is not an adapter" in refused(capsys, base, "--output_dir", tmp_path / "merged")
    assert "not a folder" in refused(capsys, tmp_path / "nowhere", "--output_dir", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_an_output_folder_in_use_is_refused_and_left_alone(tmp_path, capsys):
    adapter = trained_adapter(tmp_path / "adapter", saved_base(tmp_path / "base"), **KINDS["LoRA"])
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    assert "not empty" in refused(capsys, adapter, "--output_dir", tmp_path / "used")
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"
    assert "is a file" in refused(capsys, adapter, "--output_dir", tmp_path / "used" / "notes.txt")
    assert "own folder" in refused(capsys, adapter, "--output_dir", adapter)
    (tmp_path / "empty").mkdir()
    merge_adapter(adapter, tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").is_file()


def test_a_base_that_cannot_be_loaded_is_one_sentence(tmp_path, capsys):
    adapter = trained_adapter(tmp_path / "adapter", saved_base(tmp_path / "base"), **KINDS["LoRA"])
    (tmp_path / "base" / "config.json").unlink()
    assert "has no config.json" in refused(capsys, adapter, "--output_dir", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_an_adapter_without_weights_to_merge_is_refused(tmp_path):
    base = saved_base(tmp_path / "base")
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match="PROMPT_TUNING"):
        merge_adapter(tmp_path / "adapter", tmp_path / "merged")


def test_weights_that_are_not_finite_are_not_merged(tmp_path):
    adapter = trained_adapter(tmp_path / "adapter", saved_base(tmp_path / "base"), **KINDS["LoRA"])
    weights = load_file(adapter / "adapter_model.safetensors")
    next(iter(weights.values()))[0, 0] = float("nan")
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(RunError, match="NaN"):
        merge_adapter(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("fault", ["another head", "a weight off"])
def test_a_model_that_does_not_come_back_as_it_was_is_not_kept(tmp_path, monkeypatch, fault):
    from transformers import LlamaForCausalLM

    adapter = trained_adapter(tmp_path / "adapter", saved_base(tmp_path / "base"), **KINDS["LoRA"])
    save = LlamaForCausalLM.save_pretrained

    def save_otherwise(self, folder, **kwargs):
        save(self, folder, **kwargs)
        weights = load_file(folder / "model.safetensors")
        if fault == "another head":
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        else:
            weights["model.layers.1.mlp.up_proj.weight"][0] *= 1.001
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", save_otherwise)
    with pytest.raises(RunError, match="does not come back"):
        merge_adapter(adapter, tmp_path / "merged")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]
