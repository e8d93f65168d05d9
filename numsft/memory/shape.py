"""How many weights a decoder-only model has, and which of them a run trains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
_BIASED = ("qwen2",)  # query, key and value have a bias that no configuration field tells of


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder with a gated MLP: Llama, Mistral, Qwen2 and their like.

    Attributes:
        layers: Number of decoder layers.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        heads: Query heads.
        kv_heads: Key and value heads.
        vocabulary: Rows of the embedding and of the head, padding included.
        tied: Whether head and embedding are one matrix.
        head_width: Width of a head; None is `hidden / heads`.
        attention_bias: Whether query, key and value have a bias.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    head_width: int | None = None
    attention_bias: bool = False

    @classmethod
    def from_recipe(cls, block: Mapping[str, Any]) -> ModelShape | None:
        """Return the shape that a recipe's `shape` block gives; None where a size is missing."""
        sizes = ("layers", "hidden", "intermediate", "heads", "vocabulary")
        if any(block.get(name) is None for name in sizes):
            return None
        return cls(
            **{name: block[name] for name in sizes},
            kv_heads=block.get("kv_heads") or block["heads"],
            tied=bool(block.get("tied")),
        )

    @classmethod
    def from_config(cls, config: Any) -> ModelShape | None:
        """Return the shape of a transformers configuration; None where that is no dense decoder."""
        config = config.get_text_config()
        experts = ("num_experts", "num_local_experts", "n_routed_experts")
        fields = {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "intermediate": "intermediate_size",
            "heads": "num_attention_heads",
            "vocabulary": "vocab_size",
        }
        sizes: dict[str, Any] = {size: getattr(config, field, None) for size, field in fields.items()}
        if not all(isinstance(size, int) for size in sizes.values()):
            return None
        if any(getattr(config, field, 0) for field in experts):
            return None
        return cls(
            **sizes,
            kv_heads=getattr(config, "num_key_value_heads", None) or sizes["heads"],
            tied=bool(getattr(config, "tie_word_embeddings", False)),
            head_width=getattr(config, "head_dim", None),
            attention_bias=bool(getattr(config, "attention_bias", config.model_type in _BIASED)),
        )

    @property
    def query(self) -> int:
        """Width of all query heads together."""
        return self.heads * (self.head_width or self.hidden // self.heads)

    @property
    def key(self) -> int:
        """Width of all key heads together, which is also that of the values."""
        return self.kv_heads * (self.head_width or self.hidden // self.heads)

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """`(outputs, inputs)` of each linear map of a layer."""
        hidden, intermediate = self.hidden, self.intermediate
        return {
            "q_proj": (self.query, hidden),
            "k_proj": (self.key, hidden),
            "v_proj": (self.key, hidden),
            "o_proj": (hidden, self.query),
            "gate_proj": (intermediate, hidden),
            "up_proj": (intermediate, hidden),
            "down_proj": (hidden, intermediate),
        }

    @property
    def layer_matrix_parameters(self) -> int:
        """Weights in the linear maps of one layer."""
        return sum(outputs * inputs for outputs, inputs in self.matrices.values())

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: its linear maps, two norms, and the biases."""
        biases = self.query + 2 * self.key if self.attention_bias else 0
        return self.layer_matrix_parameters + 2 * self.hidden + biases

    @property
    def head_parameters(self) -> int:
        """Weights of the head, which are as many as the embedding's."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, a tied head counted once."""
        ends = self.head_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + ends + self.hidden


@dataclass(frozen=True)
class Lora:
    """An adapter: its rank, the linear maps of a layer that have one, dropout, and modules trained whole."""

    rank: int
    targets: tuple[str, ...]
    dropout: float = 0.0
    saved: tuple[str, ...] = ()

    def parameters(self, shape: ModelShape) -> int:
        """Weights of the adapters: A is `[rank, inputs]` and B `[outputs, rank]` (LoRA, arXiv 2106.09685)."""
        sizes = shape.matrices
        return shape.layers * sum(self.rank * sum(sizes[target]) for target in self.targets)

    def saved_parameters(self, shape: ModelShape) -> int:
        """Weights of the copies that PEFT makes of `modules_to_save`."""
        return sum(name.rsplit(".", 1)[-1] in ("lm_head", "embed_tokens") for name in self.saved) * (
            shape.head_parameters
        )


def lora_targets(wanted: str | Sequence[str] | None, model_type: str | None = None) -> tuple[str, ...]:
    """Return the linear maps of a layer that PEFT adapts for `lora_target_modules`.

    Args:
        wanted: `all-linear`, a regular expression, names or ends of names; None for PEFT's choice for the
        model.
        model_type: The architecture's name, for that choice.
    """
    if wanted is None:
        from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS

        wanted = list(DEFAULTS.get(model_type or "", ["q_proj", "v_proj"]))
    if wanted == "all-linear":
        return (*ATTENTION, *MLP)
    paths = {
        name: f"model.layers.0.{'self_attn' if name in ATTENTION else 'mlp'}.{name}"
        for name in (*ATTENTION, *MLP)
    }
    if isinstance(wanted, str):
        return tuple(name for name, path in paths.items() if re.fullmatch(wanted, path) or name == wanted)
    return tuple(
        name for name, path in paths.items() if any(path == end or path.endswith(f".{end}") for end in wanted)
    )
