import warnings

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from tiny import tiny_llama, tiny_tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM
from transformers import GraniteConfig, GraniteForCausalLM

from numsft.evaluation import entropy
from numsft.evaluation.entropy import EntropySums, token_entropies

PROMPTS = ["12+34=", "a much longer prompt, 99 bottles:", "", "x"]
TEXTS = ["46", " take 1 down, 98.5 left", "7 of 10", ""]
SMALL = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=None,
    eos_token_id=1,
    pad_token_id=2,
)


def oracle(model, tokenizer, prompts=PROMPTS, texts=TEXTS, virtual=0) -> EntropySums:
    """One row at a time, all logits in float64, a loop over positions."""
    vocab = tokenizer.get_vocab()
    digits = [vocab[d] for d in "0123456789"]
    total = EntropySums()
    for prompt, text in zip(prompts, texts, strict=True):
        ids, start = tokenizer(prompt + text)["input_ids"], len(tokenizer(prompt)["input_ids"])
        if not text:
            continue
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, virtual:].double()
        for t in range(max(start, 1), len(ids)):
            q = logits[t - 1].softmax(0)
            h = float(torch.special.entr(q).sum())
            if ids[t] in digits:
                mass = float(q[digits].sum())
                inside = float(torch.special.entr(q[digits] / mass).sum())
                total += EntropySums(1, 0, h, 0.0, inside, mass)
            else:
                total += EntropySums(0, 1, 0.0, h)
    return total


def assert_same(found: EntropySums, expected: EntropySums, tolerance=1e-5) -> None:
    assert (found.digit_tokens, found.other_tokens) == (expected.digit_tokens, expected.other_tokens)
    for name in ("digit_entropy", "other_entropy", "digit_subspace_entropy", "digit_mass"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=tolerance), name


def sharp(model):
    """Logits far apart, as those of a trained model, so that entropies differ between positions."""
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(30)
    return model.eval()


def test_sums_are_those_of_a_plain_loop_for_any_batch_size():
    model, tokenizer = sharp(tiny_llama()), tiny_tokenizer()
    expected = oracle(model, tokenizer)
    # Of the row without a prompt nothing predicts the first token, a digit.
    assert (expected.digit_tokens, expected.other_tokens) == (2 + 4 + 2, 19 + 4)
    assert 0 < expected.digit_entropy / expected.digit_tokens < 4.8
    for batch_size in (1, 3, 8):
        assert_same(token_entropies(model, tokenizer, PROMPTS, TEXTS, batch_size), expected)


@pytest.mark.parametrize(
    "model",
    [
        lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=0.1)),
        lambda: CohereForCausalLM(CohereConfig(**SMALL, logit_scale=8.0)),
        lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0)),
    ],
    ids=["granite", "cohere", "gemma2"],
)
def test_scaled_and_capped_logits_are_read_as_the_model_reads_them(model):
    torch.manual_seed(0)
    model = sharp(model())
    assert_same(token_entropies(model, tiny_tokenizer(), PROMPTS, TEXTS, 4), oracle(model, tiny_tokenizer()))


def adapted(config):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(sharp(tiny_llama()), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize(
    ("config", "virtual"),
    [
        (LoraConfig(target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM"), 0),
        (LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"), 0),
        (PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"), 3),
    ],
    ids=["lora on the head", "head trained whole", "prompt tuning"],
)
def test_adapters_take_part(config, virtual):
    model, tokenizer = adapted(config), tiny_tokenizer()
    found = token_entropies(model, tokenizer, PROMPTS, TEXTS, 4)
    assert_same(found, oracle(model, tokenizer, virtual=virtual))
    plain = token_entropies(sharp(tiny_llama()), tokenizer, PROMPTS, TEXTS, 4)
    if "lm_head" not in (config.modules_to_save if isinstance(config, LoraConfig) and config.modules_to_save else ()):
        assert found.digit_entropy != pytest.approx(plain.digit_entropy, rel=1e-3)


def test_a_half_precision_model_has_float32_logits():
    model, tokenizer = sharp(tiny_llama()), tiny_tokenizer()
    half = sharp(tiny_llama()).to(torch.bfloat16)
    exact = oracle(half.float(), tokenizer)  # the same rounded weights, nothing else rounded
    found = token_entropies(half.to(torch.bfloat16), tokenizer, PROMPTS, TEXTS, 4)
    # Hidden states are bfloat16, logits are not: their own rounding alone would be 0.4 %.
    assert_same(found, exact, tolerance=0.03)
    hidden = torch.randn(5, 32, dtype=torch.bfloat16)
    head = half.get_output_embeddings().to(torch.bfloat16)
    expected = hidden.float() @ head.weight.float().T
    torch.testing.assert_close(entropy._logits(head, hidden), expected)
    assert model.get_output_embeddings().weight.dtype == torch.float32


class LargestTensor(TorchDispatchMode):
    """The most elements that any operation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_the_logits_of_a_long_text_are_never_held_at_once(monkeypatch):
    width, tokens = 20_000, 400
    model, tokenizer = tiny_llama(vocab_size=width), tiny_tokenizer()
    text = "12 apples " * (tokens // 10)
    whole = token_entropies(model, tokenizer, ["p"], [text])
    monkeypatch.setattr(entropy, "_LOGITS_AT_ONCE", 20 * width)
    with LargestTensor() as largest:
        found = token_entropies(model, tokenizer, ["p"], [text])
    assert_same(found, whole)
    assert largest.elements == width * 32  # the head's own weight, transposed; the logits would be 8,000,000


def test_rows_beyond_the_models_positions_are_cut_and_counted():
    model, tokenizer = tiny_llama(max_position_embeddings=16), tiny_tokenizer()
    found = token_entropies(model, tokenizer, ["ab", "ab"], ["1" * 40, "22"])
    assert (found.digit_tokens, found.cut_rows) == (14 + 2, 1)


def test_the_model_is_left_as_it_was():
    model, tokenizer = tiny_llama().train(), tiny_tokenizer()
    token_entropies(model, tokenizer, PROMPTS, TEXTS)
    assert model.training and not model.base_model._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_uniform_logits_have_the_logarithm_of_the_vocabulary():
    model, tokenizer = tiny_llama(), tiny_tokenizer()
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    means = token_entropies(model, tokenizer, PROMPTS, TEXTS).means()
    assert means["digit_entropy"] == pytest.approx(4.852030263919617)  # ln 128
    assert means["other_entropy"] == pytest.approx(4.852030263919617)
    assert means["digit_subspace_entropy"] == pytest.approx(2.302585092994046)  # ln 10
    assert means["digit_mass"] == pytest.approx(10 / 128)


def test_without_positions_there_are_no_means():
    means = EntropySums().means()
    assert means["digit_entropy"] is None and means["digit_mass"] is None
    assert token_entropies(tiny_llama(), tiny_tokenizer(), [], []) == EntropySums()
    assert token_entropies(tiny_llama(), tiny_tokenizer(), ["5"], [""]) == EntropySums()
