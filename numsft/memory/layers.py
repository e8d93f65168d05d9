"""What a decoder layer keeps for its backward pass, tensor by tensor, in transformers' eager code.

The account follows Korthikanti et al., "Reducing activation recomputation" (arXiv 2205.05198, section 4.1),
for the gated MLP, RMSNorm and grouped-query attention of `LlamaDecoderLayer`, whose code says what is saved.
"""

from __future__ import annotations

from numsft.memory.setup import Setup
from numsft.memory.shape import Lora, ModelShape

_INPUT_OF = {  # which tensor each linear map reads
    "q_proj": "attention",
    "k_proj": "attention",
    "v_proj": "attention",
    "o_proj": "context",
    "gate_proj": "mlp",
    "up_proj": "mlp",
    "down_proj": "product",
}


def layer_bytes(shape: ModelShape, setup: Setup) -> int:
    """Return the bytes that one layer saves in its forward pass."""
    tokens, compute = setup.tokens, setup.compute_bytes
    total = 2 * norm_bytes(shape, setup)
    total += attention_bytes(shape, setup)
    # silu saves the gate, the product saves silu(gate) and up; what down_proj reads is counted with its input
    total += 3 * tokens * shape.intermediate * compute
    return int(total + _input_bytes(shape, setup))


def norm_bytes(shape: ModelShape, setup: Setup) -> int:
    """Return what an RMSNorm saves: its input in float32, and the normed one where its weight is trained."""
    trained = setup.residual_bytes if setup.lora is None else 0
    return setup.tokens * shape.hidden * (4 + trained)


def attention_bytes(shape: ModelShape, setup: Setup) -> int:
    """Return what attention saves: queries, keys, values, output, and a sum or the weights of each query.

    FlashAttention (arXiv 2205.14135, algorithm 1) keeps a float32 log-sum of each query and head, and so does
    PyTorch's sdpa. Eager attention keeps the softmax in float32, and again in the compute dtype for the
    product.
    """
    tokens, compute = setup.tokens, setup.compute_bytes
    masked = mask_elements(setup)
    # With a mask, or in eager code, keys and values are repeated for each query head (`repeat_kv`).
    repeated = setup.attention == "eager" or (setup.attention == "sdpa" and masked > 0)
    key = shape.query if repeated else shape.key
    total = tokens * compute * (2 * shape.query + 2 * key)
    if setup.attention == "eager":
        scores = setup.tokens * _row(setup) * shape.heads
        return total + scores * (4 if compute == 4 else 4 + compute)
    total += 4 * tokens * shape.heads
    # sdpa turns the boolean mask into an additive one, which each layer's call saves
    return total + (masked * compute if setup.attention == "sdpa" else 0)


def mask_elements(setup: Setup) -> int:
    """Return the elements of the T x T mask: none for a row alone, or where flash does the masking."""
    if setup.attention == "flash" or (setup.batch == 1 and not setup.packed):
        return 0
    return setup.tokens * _row(setup)


def backward_bytes(shape: ModelShape, setup: Setup) -> int:
    """Return what is alive in a layer's backward pass beside what was saved, at its widest: in the MLP.

    There the gradients of silu(gate) and up are at hand, with the gradient of the residual stream and of the
    norm's output. A quantised matrix is dequantised for each product.
    """
    tokens = setup.tokens
    largest = max(outputs * inputs for outputs, inputs in shape.matrices.values())
    mlp = 2 * tokens * shape.intermediate * setup.compute_bytes
    mlp += 2 * tokens * shape.hidden * max(setup.residual_bytes, setup.compute_bytes)
    scores = 2 * tokens * _row(setup) * shape.heads * 4 if setup.attention == "eager" else 0
    dequantised = largest * setup.compute_bytes if setup.quantised else 0
    # a gradient is formed in the compute dtype, then cast to the parameter's
    cast = largest * setup.compute_bytes if setup.lora is None and setup.autocast else 0
    return max(mlp, scores) + dequantised + cast


def _row(setup: Setup) -> int:
    return setup.tokens if setup.packed else setup.length


def _input_bytes(shape: ModelShape, setup: Setup) -> float:
    """Return what linear maps keep of their inputs, for the gradients of weights or adapters."""
    if setup.lora is not None:
        return _adapter_bytes(shape, setup, setup.lora)
    tokens = setup.tokens
    if setup.residual_bytes == setup.compute_bytes:
        normed = 2 * shape.hidden * setup.compute_bytes  # the readers of a norm's output share it
    else:
        normed = (
            5 * shape.hidden * setup.compute_bytes
        )  # autocast gives each of q, k, v, gate and up its own copy
    # o_proj reads the attention's output, which is saved already
    return tokens * (normed + shape.intermediate * setup.compute_bytes)


def _adapter_bytes(shape: ModelShape, setup: Setup, lora: Lora) -> float:
    """Return what adapters keep: the input of A, the input of B, and the dropout's mask.

    PEFT casts an adapter's input to the adapter's dtype and drops some of it, so each adapter has a copy of
    its own unless neither changes anything. The mask is a byte on CUDA, a number on a CPU.
    """
    tokens = setup.tokens
    adapter = setup.compute_bytes if setup.mixed else setup.trained_bytes
    shared = lora.dropout == 0 and adapter == setup.residual_bytes == setup.compute_bytes
    mask = 0 if lora.dropout == 0 else (1 if setup.device == "cuda" else adapter)
    total, kept = 0.0, {"context"} if shared else set()
    for target in lora.targets:
        total += tokens * lora.rank * adapter
        inputs = shape.matrices[target][1]
        if shared and _INPUT_OF[target] in kept:
            continue
        kept.add(_INPUT_OF[target])
        total += tokens * inputs * (adapter + mask)
    return total
