"""Memory of a training step on one GPU, from what PyTorch, TRL, accelerate and DeepSpeed allocate.

Four moments of a step compete for the peak: the head at the end of the forward pass, the beginning and the
end of the backward pass, and the optimiser step. Nothing here is fitted to a measurement;
`tests/test_memory.py` compares.
"""

from __future__ import annotations

import torch

from numsft.head_pass import WEIGHT_SLICE, default_chunk_size, tile_rows
from numsft.memory.layers import backward_bytes, layer_bytes, mask_elements, norm_bytes
from numsft.memory.moments import MemoryEstimate, Moment
from numsft.memory.setup import Setup
from numsft.memory.shape import ModelShape

_ZERO_BUCKET = 500_000_000  # DeepSpeed's reduce_bucket_size, in elements
_ZERO3_LIVE = (
    1_000_000_000  # stage3_max_live_parameters, in elements; also the sub-group of an optimiser step
)
_ZERO3_PREFETCH = 50_000_000  # stage3_prefetch_bucket_size


def trained_parameters(shape: ModelShape, setup: Setup) -> int:
    """Return how many parameters the run trains."""
    if setup.lora is None:
        return shape.parameters
    return setup.lora.parameters(shape) + setup.lora.saved_parameters(shape)


def estimate(shape: ModelShape, setup: Setup) -> MemoryEstimate:
    """Estimate the memory of one GPU from the second optimiser step on.

    Args:
        shape: The model.
        setup: The run.

    Returns:
        The moments of a step, in bytes of tensors: without the CUDA context, NCCL's buffers and
        fragmentation, which the margin of `numsft.memory.check_fits` is for.
    """
    return _Account(shape, setup).result()


class _Account:
    """The parts that several moments share, worked out once."""

    def __init__(self, shape: ModelShape, setup: Setup) -> None:
        self.shape, self.setup = shape, setup
        self.trained = trained_parameters(shape, setup)
        self.head_size = shape.head_parameters
        self.head_trained = setup.lora is None or any("lm_head" in name for name in setup.lora.saved)
        self.parts = setup.gpus if setup.sharded else 1
        self.accumulates = setup.accumulation > 1
        # FSDP2 under `no_sync` keeps whole gradients on each GPU until the last micro-batch.
        self.whole_gradients = setup.kind == "fsdp2" and self.accumulates and not setup.sync_each_batch

    def result(self) -> MemoryEstimate:
        setup, shape = self.setup, self.shape
        parameters, optimiser = self._parameters(), self._optimiser()
        saved = layer_bytes(shape, setup)
        entry = setup.tokens * shape.hidden * setup.residual_bytes
        running = backward_bytes(shape, setup)
        # Where checkpointing keeps only inputs, one layer at a time is whole again in the backward pass.
        stored = shape.layers * (entry if setup.checkpointing else saved)
        recomputed = saved if setup.checkpointing else 0
        ends = norm_bytes(shape, setup) + entry + mask_elements(setup)  # the last norm, its output, the mask
        before = self._gradients(self.accumulates)
        first = before if self.accumulates else self._head_gradient() // self.parts
        every = self._gradients(True)
        left = entry  # the gradient of the hidden states, which the head leaves to the backward pass
        return MemoryEstimate(
            (
                Moment(
                    "the end of the forward pass",
                    parameters,
                    before,
                    optimiser,
                    stored + ends,
                    self._head(),
                    self._copies(True) + self._gathered("forward"),
                ),
                Moment(
                    "the start of the backward pass",
                    parameters,
                    first,
                    optimiser,
                    stored + ends + recomputed + running,
                    left,
                    self._copies(not setup.checkpointing) + self._gathered("first"),
                ),
                Moment(
                    "the end of the backward pass",
                    parameters,
                    every,
                    optimiser,
                    saved + running,
                    0,
                    self._copies(False) + self._gathered("last") + self._fresh_gradient(),
                ),
                Moment(
                    "the optimiser step",
                    parameters,
                    self._gradients(True, reduced=True),
                    optimiser,
                    0,
                    0,
                    self._optimiser_scratch() + self._buckets(),
                ),
            ),
            shape,
            setup,
        )

    def _parameters(self) -> int:
        setup, shape = self.setup, self.shape
        if "parameters" in setup.offload:
            return 0
        parts = setup.gpus if setup.kind in ("fsdp2", "zero3") else 1
        total = self.trained * setup.trained_bytes / parts
        if setup.lora is not None:
            linear = shape.layers * shape.layer_matrix_parameters
            if setup.quantised:
                # accelerate leaves bitsandbytes' integers out of the sharding
                total += (
                    linear * setup.quantised_bytes + (shape.parameters - linear) * setup.frozen_bytes / parts
                )
            else:
                total += shape.parameters * setup.frozen_bytes / parts
        return int(total)

    def _optimiser(self) -> int:
        if "optimiser" in self.setup.offload:
            return 0
        master = 4 if self.setup.kind in ("zero2", "zero3") else 0
        return int(self.trained * (self.setup.state_bytes + master) / self.parts)

    def _gradients(self, present: bool, *, reduced: bool = False) -> int:
        if not present:
            return 0
        if self.whole_gradients and not reduced:
            return self.trained * self.setup.compute_bytes
        return int(self.trained * self.setup.trained_bytes / self.parts)

    def _head_gradient(self) -> int:
        """Bytes of the head's own gradient, as the head leaves it."""
        seen = 2 if self.setup.mixed and self.setup.sharded else self.setup.trained_bytes
        return self.head_size * seen if self.head_trained else 0

    def _head(self) -> int:
        """The chunked head (`numsft/head.py`) when it hands over its results, its buffers still there."""
        setup, shape = self.setup, self.shape
        compute, vocabulary, hidden = setup.compute_bytes, shape.vocabulary, shape.hidden
        device = torch.device(setup.device)
        chunk = min(setup.head_chunk or default_chunk_size(device, vocabulary), setup.tokens)
        # The softmax of a tile, and a float32 copy of its logits where they are narrower.
        tiles = (1 if compute == 4 else 2) * min(tile_rows(device, vocabulary), chunk) * vocabulary * 4
        logits = chunk * vocabulary * compute
        rows_of_hidden = setup.tokens * hidden * setup.residual_bytes + 2 * chunk * hidden * compute
        weight_copy = self.head_size * compute if setup.autocast else 0
        gradient = 0
        if self.head_trained:
            gradient = 4 * self.head_size  # accumulated in float32
            if compute == 2:
                gradient += max(
                    self._head_gradient() if self._head_gradient() < gradient else 0,
                    min(vocabulary, WEIGHT_SLICE) * hidden * compute,
                )
        return logits + tiles + rows_of_hidden + weight_copy + gradient

    def _copies(self, whole: bool) -> int:
        """Autocast's copies of float32 weights, of one layer or of all.

        Those of trained weights are cached until the forward pass ends; those of frozen ones live as
        long as the backward pass needs them.
        """
        setup, shape = self.setup, self.shape
        if not setup.autocast or setup.quantised:
            return 0
        if setup.lora is not None and setup.checkpointing:
            whole = False
        return setup.compute_bytes * shape.layer_matrix_parameters * (shape.layers if whole else 1)

    def _gathered(self, moment: str) -> int:
        """Parameters gathered for use, whole gradients on their way out, and communication buffers."""
        setup, shape = self.setup, self.shape
        layer, head = shape.layer_parameters * setup.compute_bytes, self.head_size * setup.compute_bytes
        trains = setup.lora is None
        if setup.kind == "fsdp2":
            if setup.gpus == 1:
                return 0
            # accelerate keeps norm and head gathered from the forward pass to their backward. FSDP2 has two
            # layers and the buffer of one all-gather in flight, a layer's whole gradient, and the input of
            # its reduction.
            if moment == "forward":
                return head
            flight = 3 * layer + (2 * layer if trains else 0)
            if moment == "first":
                return head + (2 * head if self.head_trained else 0) + flight
            return (3 * head if trains else 0) + flight
        if setup.kind == "zero3":
            live = min(_ZERO3_LIVE, shape.parameters) * setup.compute_bytes
            live += min(_ZERO3_PREFETCH, shape.parameters) * setup.compute_bytes
            return live + self._buckets()
        return self._buckets()

    def _buckets(self) -> int:
        """Buffers that live as long as the run."""
        setup = self.setup
        if setup.kind == "ddp" and setup.gpus > 1:
            return self.trained * setup.trained_bytes  # DDP's buckets hold a copy of every gradient
        if setup.kind in ("zero2", "zero3"):
            copies = 2 if setup.kind == "zero3" else 1  # overlap_comm is on in stage 3 only
            return copies * min(_ZERO_BUCKET, self.trained) * setup.trained_bytes
        return 0

    def _fresh_gradient(self) -> int:
        """The embedding's gradient before it is added to a tied head's, or to an earlier micro-batch's."""
        embedding_trained = self.setup.lora is None
        if not embedding_trained or self.setup.sharded or not (self.shape.tied or self.accumulates):
            return 0
        return self.head_size * self.setup.trained_bytes

    def _optimiser_scratch(self) -> int:
        setup, shape = self.setup, self.shape
        if "optimiser" in setup.offload:
            return 0
        if setup.kind == "zero2":
            return int(self.trained * 4 / self.parts)  # the gradient in float32
        if setup.kind == "zero3":
            return int(min(_ZERO3_LIVE, self.trained / self.parts) * 4)
        name = setup.optimiser.lower()
        if "fused" in name or "8bit" in name or name.startswith("sgd"):
            return 0
        if setup.device == "cuda" and not name.startswith("adafactor"):
            # the foreach form holds the square roots of all second moments at once
            return int(self.trained * setup.trained_bytes / self.parts)
        largest = max(self.head_size, max(a * b for a, b in shape.matrices.values()))
        return int(2 * largest * setup.trained_bytes / self.parts) if setup.lora is None else 0
