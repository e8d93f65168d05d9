"""Tiny random models and a small digit-level tokenizer, made on the spot: what most tests train on."""

from __future__ import annotations

import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    ""
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character of ASCII, so every digit is its own token (ids are not in any special order)."""
    characters = [
        *string.ascii_lowercase,
        *"9876543210",
        *string.ascii_uppercase,
        *string.punctuation,
        " ",
        "\n",
    ]
    vocab = {"<unk>": 0, "<|im_end|>": 1, "<pad>": 2, "<|im_start|>": 3}
    for character in characters:
        vocab.setdefault(character, len(vocab))
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_llama(vocab_size: int = 128, *, tied: bool = False, seed: int = 0, **config) -> LlamaForCausalLM:
    """A two-layer Llama of hidden size 32 with random float32 weights."""
    settings = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=2,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=vocab_size, tie_word_embeddings=tied, **{**settings, **config})
    )
