"""What a run sets that its memory depends on, and the width of every number it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from numsft.memory.shape import Lora


@dataclass(frozen=True)
class Setup:
    """One run on one GPU of many.

    Attributes:
        batch: Rows a micro-batch on one GPU.
        length: Tokens a row.
        accumulation: Micro-batches an optimiser step.
        checkpointing: Activation checkpointing: a layer keeps its input and is computed again in the
        backward pass.
        lora: The adapter; None trains every weight.
        weight_bytes: Bytes of a loaded weight: 4 for float32, 2 for bfloat16.
        mixed: bf16 or fp16 mixed precision.
        quantised: Bits of the frozen linear maps, 4 or 8; None where they are not quantised.
        nested: Whether the 4-bit scales are quantised themselves.
        optimiser: transformers' name, `optim`.
        attention: `flash`, `sdpa` or `eager`.
        packed: Whether rows are laid end to end in one row (packing, padding-free).
        kind: One of `numsft.memory.plan.KINDS`.
        gpus: Processes that share the state.
        sync_each_batch: Whether gradients are reduced after each micro-batch (accelerate's own key).
        offload: Parts kept in the machine's memory, of `optimiser` and `parameters`.
        head_chunk: Tokens that the head treats at a time; None for the default.
        device: `cuda` or `cpu`.
    """

    batch: int
    length: int
    accumulation: int = 1
    checkpointing: bool = True
    lora: Lora | None = None
    weight_bytes: int = 4
    mixed: bool = True
    quantised: int | None = None
    nested: bool = False
    optimiser: str = "adamw_torch_fused"
    attention: str = "sdpa"
    packed: bool = False
    kind: str = "none"
    gpus: int = 1
    sync_each_batch: bool = False
    offload: tuple[str, ...] = ()
    head_chunk: int | None = None
    device: str = "cuda"

    @property
    def tokens(self) -> int:
        """Tokens a micro-batch, padding included."""
        return self.batch * self.length

    @property
    def sharded(self) -> bool:
        """Whether gradients and optimiser are spread in parts."""
        return self.kind in ("fsdp2", "zero2", "zero3")

    @property
    def autocast(self) -> bool:
        """Whether products are cast from float32 weights: FSDP2 and DeepSpeed cast the weights themselves."""
        return self.mixed and self.weight_bytes == 4 and not self.sharded

    @property
    def compute_bytes(self) -> int:
        """Bytes of a number inside a layer's products."""
        return 2 if self.mixed else self.weight_bytes

    @property
    def residual_bytes(self) -> int:
        """Bytes of a number in the residual stream: as wide as the weights that the layers see."""
        return 2 if self.mixed and self.sharded else self.weight_bytes

    @property
    def trained_bytes(self) -> int:
        """Bytes of a trained parameter.

        PEFT keeps adapters of half-precision models in float32 (`autocast_adapter_dtype`), TRL those of
        quantised models in bfloat16; accelerate's FSDP2 makes trained weights float32, DeepSpeed makes all
        weights bfloat16.
        """
        if self.kind in ("zero2", "zero3"):
            return 2 if self.mixed else self.weight_bytes
        if self.kind == "fsdp2" and self.mixed and self.quantised is None:
            return 4
        if self.lora is not None:
            return 4 if self.quantised is None else 2
        return self.weight_bytes

    @property
    def frozen_bytes(self) -> int:
        """Bytes of a frozen weight that is not quantised."""
        return 2 if self.mixed and self.kind in ("zero2", "zero3") else self.weight_bytes

    @property
    def quantised_bytes(self) -> float:
        """Bytes of a quantised weight with its scales.

        QLoRA (arXiv 2305.14314, section 3) has a float32 scale for 64 weights, nested an 8-bit one and
        another float32 for 256 of those; LLM.int8 has one for a row, next to nothing.
        """
        if self.quantised == 8:
            return 1.0
        return 0.5 + (1 / 64 + 4 / (64 * 256) if self.nested else 4 / 64)

    @property
    def state_bytes(self) -> float:
        """Bytes of optimiser state a trained parameter, without DeepSpeed's float32 copy.

        AdamW keeps two moments in the parameter's dtype. bitsandbytes' 8-bit form keeps each in a byte with
        a float32 scale for 256. Adafactor's factored moments are sums of rows and columns, SGD without
        momentum keeps nothing.
        """
        width = 4 if self.kind in ("zero2", "zero3") else self.trained_bytes
        name = self.optimiser.lower()
        if "8bit" in name:
            return 2 * (1 + 4 / 256) if "adam" in name else 1 + 4 / 256
        if name.startswith(("sgd", "adafactor")):
            return 0.0
        if "lion" in name or name.startswith(("rmsprop", "adagrad")):
            return float(width)
        return 2.0 * width
