"""Loading by every kind of name, and what a user reads when it fails."""

import importlib.util
import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny import tiny_llama, tiny_tokenizer

from numsft.errors import UserError
from numsft.models import find_model, load_adapter_or_model, load_model, load_tokenizer, resolve_attention

IDS = torch.arange(3, 23)[None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "base"
    tiny_llama(vocab_size=104).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def save_adapter(path, base: str):
    """A LoRA adapter that changes the logits, saying that it was trained on `base`."""
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = get_peft_model(tiny_llama(vocab_size=104), config)
    adapted.peft_config["default"].base_model_name_or_path = base
    adapted.save_pretrained(path)
    return adapted.eval()


def write_gguf(path, model) -> None:
    """Write a Llama model as a GGUF file of float32 tensors."""
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("A title")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:  # llama.cpp interleaves the rotary halves
                tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_a_gguf_model_is_clean_it_saves_and_reloads_to_equal_logits(tmp_path):
    original = tiny_llama(vocab_size=104).eval()
    write_gguf(tmp_path / "tiny.gguf", original)
    model = load_model(str(tmp_path))  # the only .gguf file of a folder without config.json
    torch.testing.assert_close(logits(model), logits(original), rtol=0, atol=1e-5)
    assert not hasattr(model.config, "quantization_config")
    assert not getattr(model, "is_quantized", False)
    assert model.config._name_or_path == str(tmp_path)

    model.save_pretrained(tmp_path / "saved")  # transformers refuses a model that is marked as quantised
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    assert torch.equal(logits(load_model(str(tmp_path / "saved"))), logits(model))


def test_a_gguf_file_can_be_named_itself_or_beside_its_folder(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    for source in (find_model(str(tmp_path / "b.gguf")), find_model(str(tmp_path), "b.gguf")):
        assert (source.path, source.gguf_file) == (str(tmp_path), "b.gguf")
    with pytest.raises(UserError, match=r"2 .gguf files \(a.gguf, b.gguf\): name one with gguf_file"):
        find_model(str(tmp_path))
    with pytest.raises(UserError, match=r"gguf_file is 'c.gguf', which is not in .*a.gguf, b.gguf"):
        find_model(str(tmp_path), "c.gguf")


def test_a_missing_gguf_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.gguf").touch()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(UserError, match=r'pip install "numsft\[quickstart\]"'):
        load_model(str(tmp_path))


def test_a_damaged_gguf_file_is_one_sentence(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF but no more")
    with pytest.raises(UserError, match=r"^cannot load model"):
        load_model(str(tmp_path))


def test_a_gguf_file_is_not_quantised_again(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "a.gguf").touch()
    with pytest.raises(UserError, match="without load_in_4bit"):
        load_model(str(tmp_path), quantization_config=object())


def test_an_adapter_is_put_on_the_base_it_names(folder, tmp_path):
    adapted = save_adapter(tmp_path / "adapter", str(folder))
    model = load_adapter_or_model(str(tmp_path / "adapter"))
    assert isinstance(model, PeftModel)
    torch.testing.assert_close(logits(model), logits(adapted))
    base = load_model(str(tmp_path / "adapter"))
    assert not isinstance(base, PeftModel)
    assert (logits(model) - logits(base)).abs().max() > 1e-3
    assert load_tokenizer(str(tmp_path / "adapter")).encode("42") == tiny_tokenizer().encode("42")


@pytest.mark.parametrize("name", ["adapter", "adapter/checkpoint-20"])
def test_resolved_yaml_comes_before_adapter_config(folder, tmp_path, name):
    """The adapter names the public base; the recipe keeps the copy that it was trained on."""
    save_adapter(tmp_path / name, "owner/public")
    (tmp_path / "adapter" / "resolved.yaml").write_text(
        f"model_name_or_path: {folder}\nlearning_rate: 1e-5\n"
    )
    source = find_model(str(tmp_path / name))
    assert (source.base, source.path, source.gguf_file) == (str(folder), str(folder), None)
    assert source.adapter == tmp_path / name


def test_resolved_yaml_gives_package_and_gguf_file(folder, tmp_path, monkeypatch):
    package = tmp_path / "site" / "tiny_package"
    package.mkdir(parents=True)
    (package / "m.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    save_adapter(tmp_path / "adapter", "owner/public")
    (tmp_path / "adapter" / "resolved.yaml").write_text(
        "model_name_or_path: package:tiny_package\ngguf_file: m.gguf\n"
    )
    source = find_model(str(tmp_path / "adapter"))
    assert (source.base, source.path, source.gguf_file) == ("package:tiny_package", str(package), "m.gguf")


def test_an_adapters_own_tokenizer_wins(folder, tmp_path):
    save_adapter(tmp_path / "adapter", str(folder))
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(tmp_path / "adapter")
    assert len(load_tokenizer(str(tmp_path / "adapter"))) == len(tiny_tokenizer()) + 1


def test_an_adapter_without_a_base_an_adapters_adapter_and_a_misfit_are_refused(folder, tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "adapter_config.json").write_text('{"base_model_name_or_path": null}')
    with pytest.raises(UserError, match="does not say what it was trained on"):
        find_model(str(tmp_path / "bare"))
    save_adapter(tmp_path / "first", str(folder))
    save_adapter(tmp_path / "second", str(tmp_path / "first"))
    with pytest.raises(UserError, match="which is an adapter itself"):
        find_model(str(tmp_path / "second"))
    tiny_llama(vocab_size=104, hidden_size=64).save_pretrained(tmp_path / "wide")
    save_adapter(tmp_path / "misfit", str(tmp_path / "wide"))
    with pytest.raises(UserError, match=r"^cannot load adapter .*misfit on .*wide"):
        load_adapter_or_model(str(tmp_path / "misfit"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "is no folder here and no Hub id"),
        ("a/b/c", "is no folder here and no Hub id"),
        ("../relative", "is no folder here and no Hub id"),
        ("package:no_such_package", "is not installed: run `pip install no-such-package`"),
        ("no_such_model", r"^cannot load model no_such_model: .*; correct the name, or check"),
    ],
)
def test_a_model_that_is_not_there_is_one_short_sentence(name, message):
    with pytest.raises(UserError, match=message) as caught:
        load_model(name)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_says_what_it_lacks(tmp_path):
    with pytest.raises(UserError, match=r"has no config.json, no adapter_config.json and no .gguf file"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "no_such_type"}')
    with pytest.raises(UserError, match=r"^cannot load model .*no_such_type"):
        load_model(str(tmp_path))


def test_dtype_and_absent_options_are_passed_on(folder):
    absent = dict(revision=None, quantization_config=None, trust_remote_code=False)
    assert load_model(str(folder), dtype="bfloat16", **absent).dtype == torch.bfloat16
    assert load_model(str(folder), dtype=torch.float64, attn_implementation="eager").dtype == torch.float64
    assert load_model(str(folder)).dtype == torch.float32


def test_auto_attention_is_flash_only_where_it_runs(monkeypatch, folder):
    from transformers.utils import import_utils

    assert load_model(str(folder), attn_implementation="auto").config._attn_implementation == "sdpa"
    assert resolve_attention("eager") == "eager"
    assert resolve_attention(None) is None
    monkeypatch.setattr(import_utils, "is_flash_attn_2_available", lambda: True)
    for capability, expected in (((9, 0), "flash_attention_2"), ((7, 5), "sdpa")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert resolve_attention("auto") == expected
    monkeypatch.setattr(import_utils, "is_flash_attn_2_available", lambda: False)
    assert resolve_attention("auto") == "sdpa"


def test_flash_attention_that_is_asked_for_names_the_extra_where_it_is_absent(monkeypatch, folder):
    # trl#4175: an ImportError from inside transformers.
    if importlib.util.find_spec("flash_attn") is None:
        with pytest.raises(
            UserError, match=r'flash-attn is not installed: run `pip install "numsft\[gpu\]"`'
        ):
            load_model(str(folder), attn_implementation="flash_attention_2")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: find_spec("torch" if name == "flash_attn" else name)
    )
    with pytest.raises(UserError, match="does not run here"):
        load_model(str(folder), attn_implementation="flash_attention_2")


def test_flash_attention_reaches_from_pretrained_where_it_runs(monkeypatch, folder):
    from transformers import AutoModelForCausalLM
    from transformers.utils import import_utils

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: find_spec("torch" if name == "flash_attn" else name)
    )
    monkeypatch.setattr(import_utils, "is_flash_attn_2_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    seen = []
    monkeypatch.setattr(
        AutoModelForCausalLM,
        "from_pretrained",
        lambda path, **options: seen.append(options["attn_implementation"]),
    )
    for choice in ("auto", "flash_attention_2"):
        load_model(str(folder), attn_implementation=choice)
    assert seen == ["flash_attention_2", "flash_attention_2"]
