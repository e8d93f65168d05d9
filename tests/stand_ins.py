"""Tiny models of the recipes' architectures with their real head widths, and rows in MathInstruct's columns.

Qwen has its own tokenizer; CodeLlama and Mistral have Mistral's SentencePiece model, CodeLlama's being of the same
family; DeepSeek-Math's is in no package, so a tokenizer of one token a character with a chat template stands in.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from real_tokenizers import mistral_converted, qwen
from tiny import tiny_tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

ARCHITECTURES = {
    "codellama7b": (LlamaConfig, mistral_converted),
    "mistral7b": (MistralConfig, mistral_converted),
    "deepseekmath7b": (LlamaConfig, tiny_tokenizer),
    "qwen1.5b": (Qwen2Config, qwen),
    "qwen7b": (Qwen2Config, qwen),
}


def save_stand_in(base: str, shape: dict, folder: Path) -> Path:
    """Save a two-layer model of hidden size 16 with the head of `shape`, and its tokenizer."""
    config_class, tokenizer_of = ARCHITECTURES[base]
    tokenizer = tokenizer_of()
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
