"""How a model's ten digit embeddings lie to each other (the paper's Fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from numsft.numerals import NumberVocab


@dataclass(frozen=True, eq=False)
class DigitMap:
    """Ten vectors, one a digit.

    Attributes:
        cosine: `[10, 10]`, their cosine similarities.
        projection: `[10, 2]`, their first two principal components.
        explained: Share of the variance on each of the two.
        order_correlation: Pearson correlation of the 45 cosines with `1 - |i - j| / 9`; 1 is a number line.
    """

    cosine: Tensor
    projection: Tensor
    explained: tuple[float, float]
    order_correlation: float


def ideal_similarity() -> Tensor:
    """Return `1 - |i - j| / 9`, `[10, 10]`: similarity that falls linearly with the digits' distance."""
    digits = torch.arange(10.0)
    return 1 - (digits[:, None] - digits).abs() / 9


def digit_ids(vocab: NumberVocab) -> list[int] | None:
    """Return the ids of the single-digit tokens 0..9, None where the vocabulary lacks one."""
    first: dict[int, int] = {}
    for token_id, value, length in zip(
        vocab.token_ids.tolist(), vocab.values.tolist(), vocab.lengths.tolist(), strict=True
    ):
        if length == 1:
            first.setdefault(int(value), token_id)
    return [first[digit] for digit in range(10)] if len(first) == 10 else None


def digit_vectors(model: Any, ids: list[int]) -> tuple[Tensor, Tensor | None]:
    """Return the digits' input embeddings and, where not tied, the LM head's rows, `[10, H]` float32.

    Both go through the modules, so adapters on them count.
    """
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    with torch.no_grad():
        inputs = embed(torch.tensor(ids, device=embed.weight.device)).float().cpu()
    # A row of an affine head is the derivative of its logit.
    hidden = torch.zeros(len(ids), head.in_features, dtype=head.weight.dtype, device=head.weight.device)
    with torch.enable_grad():
        logits = head(hidden.requires_grad_())
        picked = logits[torch.arange(len(ids)), torch.tensor(ids)].sum()
        outputs = torch.autograd.grad(picked, hidden)[0].float().cpu()
    unit = torch.nn.functional.normalize
    tied = inputs.shape == outputs.shape and torch.allclose(unit(inputs), unit(outputs), atol=1e-3)
    return inputs, None if tied else outputs


def digit_map(vectors: Tensor) -> DigitMap:
    """Compare ten vectors `[10, H]` with each other."""
    vectors = vectors.double()
    unit = torch.nn.functional.normalize(vectors)
    cosine = unit @ unit.T
    left, singular, _ = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    projection = left[:, :2] * singular[:2]
    projection = projection * torch.where(
        projection[9] < projection[0], -1.0, 1.0
    )  # 0 to the lower left of 9
    share = (singular**2 / (singular**2).sum())[:2].tolist()
    above = torch.triu_indices(10, 10, 1)
    pairs = torch.stack([cosine[above[0], above[1]], ideal_similarity().double()[above[0], above[1]]])
    return DigitMap(cosine, projection, (share[0], share[1]), float(torch.corrcoef(pairs)[0, 1]))
