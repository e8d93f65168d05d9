"""Tiny models of the recipes' architectures with their real head widths, and rows like MathInstruct's.

Qwen has its own vocabulary; CodeLlama and Mistral have Mistral's SentencePiece model, CodeLlama's being of
the same family; DeepSeek-Math's is in no package, so one token a character, with a chat template, stands in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from real_tokenizers import mistral_converted, qwen
from tiny import tiny_tokenizer
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)


def quick_qwen() -> PreTrainedTokenizerFast:
    """Qwen2.5's tokenizer in the general class, which `datasets` hashes in a tenth of the time."""
    tokenizer = qwen()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
    )


def tiny_qwen() -> PreTrainedTokenizerFast:
    """One token a character, with the end token that Qwen's recipes name: loaded at once."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})
    return tokenizer


def tiny_deepseek() -> PreTrainedTokenizerFast:
    """One token a character, and turns of DeepSeek-Math's form: `User: ...`, `Assistant: ...`, the end."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}"
        "{% if message.role == 'user' %}User: {{ message.content }}\n\n"
        "{% else %}Assistant: {{ message.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    return tokenizer


ARCHITECTURES = {
    "codellama7b": (LlamaConfig, mistral_converted),
    "mistral7b": (MistralConfig, mistral_converted),
    "deepseekmath7b": (LlamaConfig, tiny_deepseek),
    "qwen1.5b": (Qwen2Config, quick_qwen),
    "qwen7b": (Qwen2Config, quick_qwen),
}


def save_stand_in(base: str, shape: dict, folder: Path, tokenizer_of: Callable | None = None) -> Path:
    """Save a two-layer model of hidden size 16 with the head of `shape`, and its tokenizer."""
    config_class, own_tokenizer = ARCHITECTURES[base]
    tokenizer = (tokenizer_of or own_tokenizer)()
    torch.manual_seed(0)
    config = config_class(
        vocab_size=shape["vocabulary"],
        tie_word_embeddings=shape["tied"],
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_rows(path: Path, rows: int = 16) -> Path:
    """Write questions answered in words and, every other one, by a program."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            a, b = 7 * i + 12, 3 * i + 0.5
            question = f"A box holds {a} nails and {b} screws. How many parts are there?"
            words = f"There are {a} + {b} = {a + b} parts. The answer is {a + b}"
            program = f"nails = {a}\nscrews = {b}\nprint(nails + screws)"
            if i % 2:
                question, words = f"{question} Let's write a program.", program
            row = {"source": f"data/{i % 3}.json", "instruction": question, "output": words}
            file.write(json.dumps(row) + "\n")
    return path
