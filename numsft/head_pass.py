"""One pass over the chunks of a micro-batch: what `numsft.head` does inside its autograd function."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.liger import cross_entropy_gradient_, has_gradient_kernel
from numsft.losses.base import NumberLevelLoss
from numsft.losses.emo import cosines, earth_mover, inverse_lengths
from numsft.microbatch import HeadBatch
from numsft.objective import Objective

SUM_NAMES = (
    "tokens",
    "token_loss",
    "correct",
    "entropy",
    "number_loss",
    "digits",
    "digit_correct",
    "digit_entropy",
    "digit_mass",
    "digit_logit",
)
"""What the head sums over a micro-batch, in the order of the vector that it returns."""

_TILE_ELEMENTS = 1 << 20
"""Logits per tile on a CPU: the statistics pass over a tile several times, so it should stay in the cache."""

WEIGHT_SLICE = 1 << 14
"""Vocabulary rows multiplied at a time where the weight's gradient is accumulated in a wider dtype."""


@dataclass(frozen=True)
class LogitTransform:
    """What a model does to its raw logits: `z -> softcap * tanh(scale * z / softcap)`."""

    scale: float = 1.0
    softcap: float | None = None

    @property
    def is_identity(self) -> bool:
        """Whether the model uses its raw logits."""
        return self.scale == 1.0 and self.softcap is None

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the transformed logits, in autograd."""
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def apply_(self, logits: Tensor) -> Tensor:
        """Transform `logits` in place and return them."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits

    def slope(self, transformed: Tensor) -> Tensor | float | None:
        """Return the derivative by the raw logits, from the transformed ones; None where it is 1."""
        if self.softcap is not None:
            return (1 - (transformed / self.softcap) ** 2).mul_(self.scale)
        return self.scale if self.scale != 1.0 else None


IDENTITY = LogitTransform()


def tile_rows(device: torch.device, vocab_size: int) -> int:
    """Return the rows that are passed over at a time while their logits are hot."""
    return max(1, _TILE_ELEMENTS // vocab_size) if device.type == "cpu" else 256


def default_chunk_size(device: torch.device, vocab_size: int) -> int:
    """Return the number of tokens a chunk: long enough that the head's gradient is not rewritten too often.

    Measured with `benchmarks/head.py`: every chunk reads and writes the whole `[vocab, hidden]` gradient
    once, so the cost of that falls with the chunk's length, while its logits take `4 * chunk * vocab` bytes.
    """
    budget = 384 << 20 if device.type == "cpu" else 1 << 30
    return max(64, min(4096, budget // (4 * vocab_size) // 64 * 64))


def largest_logit(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest logit of each row and whether it is the label's, `[m]` each.

    Of equal logits, the one that greedy decoding takes counts. To count each as right would favour a high
    level: at 30, bfloat16 has steps of 0.125, and two digits often share one.

    Args:
        logits: `[m, V]`; on a CPU the labels' entries are overwritten and put back.
        labels: `[m]`.
    """
    if logits.device.type != "cpu":
        top, index = logits.max(1)
        return top, index == labels
    # A CPU's `max` takes eight times as long with the index as without; only rows with a tie need it.
    own = logits.gather(1, labels[:, None])
    others = logits.scatter_(1, labels[:, None], -torch.inf).amax(1)
    logits.scatter_(1, labels[:, None], own)
    own = own[:, 0]
    correct = own > others
    tied = (own == others).nonzero()[:, 0]
    correct[tied] = logits[tied].argmax(1) == labels[tied]
    return torch.maximum(own, others), correct


class HeadPass:
    """One pass over the chunks of a micro-batch, with its accumulators and buffers."""

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        batch: HeadBatch,
        objective: Objective,
        transform: LogitTransform,
        compute: torch.dtype,
        needs: list[bool],
        cost_embedding: Tensor | None,
    ) -> None:
        """Set up accumulators; arguments as in `numsft.head.chunked_head`, `needs` as autograd's."""
        self.hidden, self.weight, self.bias = hidden, weight, bias
        self.batch, self.objective, self.transform = batch, objective, transform
        self.compute = compute
        self.stat = torch.float64 if compute == torch.float64 else torch.float32
        self.weight_c = weight.detach().to(compute)
        self.bias_c = None if bias is None else bias.detach().to(compute)
        self.needs_hidden, self.needs_weight, self.needs_bias = needs
        self.token_scale = batch.token_scale.to(self.stat)
        self.number_scale = batch.number_scale.to(self.stat)
        # The gradient of a mean over thousands of tokens underflows in float16, so there its scale comes
        # last.
        self.late_scale = self.token_scale if compute == torch.float16 else None
        if self.late_scale is not None:
            self.number_scale = self.number_scale / self.late_scale
            self.token_scale = torch.ones_like(self.late_scale)
        self.weights = batch.weights.to(self.stat)
        self.values = batch.values.to(self.stat)
        # Which number positions fall into a chunk is looked up on the CPU: one transfer for all chunks.
        self.number_rows_cpu = batch.number_rows.cpu()

        self.grad_hidden = torch.zeros_like(hidden) if self.needs_hidden else None
        self.grad_weight: Tensor | None = None
        self.grad_bias = hidden.new_zeros(len(weight), dtype=self.stat) if self.needs_bias else None
        self.loss = hidden.new_zeros((), dtype=self.stat)
        self.sums = hidden.new_zeros(len(SUM_NAMES), dtype=torch.float64)
        self.ce_sum = hidden.new_zeros((), dtype=self.stat)
        self.kernel = transform.is_identity and has_gradient_kernel(hidden.device)
        self.buffer: Tensor | None = None
        self.cosine_buffer: Tensor | None = None
        self.cost = weight if cost_embedding is None else cost_embedding.to(hidden.device)
        if objective.token_loss.needs_cost_embedding:
            self.inverse = inverse_lengths(self.cost)
            self.cost = self.cost.detach().to(compute)

    def results(self) -> tuple[Tensor, Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
        """Return loss, sums, and the gradients of hidden states, weight and bias in their own dtypes."""
        if self.needs_weight and self.grad_weight is None:
            self.grad_weight = torch.zeros_like(self.weight)
        grads = [self.grad_hidden, self.grad_weight, self.grad_bias]
        self.grad_weight = None
        if self.late_scale is not None:
            self.loss = self.loss * self.late_scale
        if grads[1] is not None:
            grads[1] = grads[1].to(self.weight.dtype)
        if grads[2] is not None and self.bias is not None:
            grads[2] = grads[2].to(self.bias.dtype)
        return self.loss, self.sums, (grads[0], grads[1], grads[2])

    def chunk(self, start: int, stop: int) -> None:
        """Process positions `start:stop`, m of them with k number positions."""
        batch = self.batch
        rows, labels = batch.rows[start:stop], batch.labels[start:stop]
        hidden = self.hidden.index_select(0, rows).to(self.compute)  # [m, H]
        logits = self._project(hidden)  # [m, V]
        tile = tile_rows(logits.device, logits.shape[1])
        first, last = torch.searchsorted(self.number_rows_cpu, torch.tensor([start, stop])).tolist()
        number_rows = batch.number_rows[first:last] - start  # [k]

        lse, correct, entropy = self._statistics(logits, labels, tile)
        label_logit = self._transformed(logits.gather(1, labels[:, None]))[:, 0]
        number_logits = self._transformed(logits[:, batch.token_ids].index_select(0, number_rows))  # [k, C]

        cosine, emo, expected = self._earth_mover(logits, lse, labels, tile)

        # Small leaves carry every gradient: the log-partition, the label's logit, the number columns, EMO.
        with torch.enable_grad():
            lse = lse.requires_grad_()
            label_logit = label_logit.requires_grad_()
            number_logits = number_logits.requires_grad_()
            emo = None if emo is None else emo.requires_grad_()
            ce = lse - label_logit
            token = self.objective.token_loss(ce, emo).sum()
            log_mass = number_logits.logsumexp(1) - lse[number_rows]
            number = self._digit_loss(number_logits, log_mass, first, last)
            total = token * self.token_scale + number * self.number_scale
        self.loss += total.detach()
        self.ce_sum += ce.detach().sum()
        self._add_sums(token, number, correct, entropy, number_rows, number_logits, log_mass)
        if not (self.needs_hidden or self.needs_weight or self.needs_bias):
            return
        leaves = [lse, label_logit, number_logits, *([] if emo is None else [emo])]
        d_lse, d_label, d_numbers, *d_emo = torch.autograd.grad(total, leaves, materialize_grads=True)
        d_columns = logits.new_zeros(len(labels), len(batch.token_ids), dtype=self.stat)
        d_columns[number_rows] = d_numbers
        moved = None if cosine is None or expected is None else (cosine, expected, d_emo[0])
        self._write_gradient(logits, tile, lse.detach(), labels, d_lse, d_label, d_columns, moved)
        self._multiply(logits, hidden, rows)

    def _project(self, hidden: Tensor) -> Tensor:
        if self.buffer is None or len(self.buffer) < len(hidden):
            self.buffer = hidden.new_empty(len(hidden), len(self.weight_c))
        logits = torch.mm(hidden, self.weight_c.T, out=self.buffer[: len(hidden)])
        return logits if self.bias_c is None else logits.add_(self.bias_c)

    def _transformed(self, logits: Tensor) -> Tensor:
        """Return the model's logits, a copy in the statistics dtype."""
        return self.transform.apply_(logits.to(self.stat, copy=True))

    def _read(self, logits: Tensor) -> Tensor:
        """Return the model's logits in the statistics dtype, the same memory where nothing has to change."""
        return (
            logits if logits.dtype == self.stat and self.transform.is_identity else self._transformed(logits)
        )

    def _statistics(self, logits: Tensor, labels: Tensor, tile: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return each row's log-partition, whether its label's logit is the largest, its entropy: `[m]`."""
        parts = []
        scratch = logits.new_empty(min(tile, len(logits)), logits.shape[1], dtype=self.stat)
        for part, label in zip(torch.split(logits, tile), torch.split(labels, tile), strict=True):
            z = self._read(part)
            q = torch.softmax(z, 1, out=scratch[: len(z)])
            top, correct = largest_logit(z, label)
            lse = top - q.amax(1).log()
            # H = log Z - sum_j q_j z_j; on a CPU multiply and sum take a tenth of a batched dot product's
            # time.
            entropy = lse - q.mul_(z).sum(1)
            parts.append((lse, correct, entropy))
        lse, correct, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        return lse, correct, entropy

    def _digit_loss(self, number_logits: Tensor, log_mass: Tensor, first: int, last: int) -> Tensor:
        """Return the weighted sum of a digit-level loss over the chunk's number positions `first:last`."""
        loss = self.objective.number_loss
        if loss is None or self.objective.unit == "number":
            return number_logits.sum() * 0
        terms = loss(
            number_logits,
            self.batch.classes[first:last],
            self.values,
            log_mass if loss.needs_log_mass else None,
        )
        return (terms * self.weights[first:last]).sum()

    def _earth_mover(
        self, logits: Tensor, lse: Tensor, labels: Tensor, tile: int
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return EMO's cosines `[m, V]`, EMO `[m]` and the expected cosine `[m]`; Nones for other losses."""
        if not self.objective.token_loss.needs_cost_embedding:
            return None, None, None
        if self.cosine_buffer is None or len(self.cosine_buffer) < len(labels):
            self.cosine_buffer = torch.empty_like(logits)
        cosine = cosines(labels, self.cost, self.inverse, out=self.cosine_buffer[: len(labels)])
        parts = []
        for i in range(0, len(logits), tile):
            part = slice(i, i + tile)
            q = (self._read(logits[part]) - lse[part, None]).exp_()
            parts.append(earth_mover(q, labels[part], cosine[part].to(self.stat)))
        emo, expected = (torch.cat(column) for column in zip(*parts, strict=True))
        return cosine, emo, expected

    def number_level(self) -> None:
        """Add a loss with one term a number, and its gradients.

        It needs all digits of a number at once, wherever the chunks are cut, and maybe the micro-batch's mean
        cross-entropy. So the number columns of the whole micro-batch are projected here, after the chunks:
        M times C times H, next to nothing.
        """
        batch, loss = self.batch, self.objective.number_loss
        if not isinstance(loss, NumberLevelLoss):
            return
        rows = batch.rows[batch.number_rows]
        hidden = self.hidden.index_select(0, rows).to(self.stat)  # [M, H]
        columns = self.weight_c[batch.token_ids].to(self.stat)  # [C, H]
        raw = hidden @ columns.T
        if self.bias_c is not None:
            raw += self.bias_c[batch.token_ids].to(self.stat)
        with torch.enable_grad():
            raw = raw.requires_grad_()
            number = loss(
                self.transform(raw),
                batch.classes,
                self.values,
                places=batch.places,
                numbers=batch.numbers,
                generator=self._noise(raw.shape) if loss.stochastic else None,
                ce=self.ce_sum / max(len(batch.rows), 1) if loss.needs_token_loss else None,
            ).sum()
            (d_raw,) = torch.autograd.grad(number * self.number_scale, raw)
        self.loss += number.detach() * self.number_scale
        self.sums[SUM_NAMES.index("number_loss")] += number.detach()
        if self.grad_hidden is not None:
            self.grad_hidden.index_add_(0, rows, (d_raw @ columns).to(self.hidden.dtype))
        if self.needs_weight:
            if self.grad_weight is None:
                self.grad_weight = torch.zeros_like(self.weight, dtype=self.stat)
            self.grad_weight.index_add_(0, batch.token_ids, d_raw.T @ hidden)
        if self.grad_bias is not None:
            self.grad_bias.index_add_(0, batch.token_ids, d_raw.sum(0))

    def _noise(self, shape: torch.Size) -> Tensor:
        """Return exponential draws `[M, C]`, each row's (document's) from a seed of its own.

        So they do not depend on how the step is cut into micro-batches or packed.
        """
        draws = []
        generator = torch.Generator()
        keys, counts = torch.unique_consecutive(self.batch.row_keys.cpu(), return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            generator.manual_seed(hash((self.batch.seed, key)) % 2**63)
            draws.append(torch.empty(count, shape[1]).exponential_(generator=generator))
        return torch.cat([torch.empty(0, shape[1]), *draws]).to(self.hidden.device)

    def _add_sums(
        self,
        token: Tensor,
        number: Tensor,
        correct: Tensor,
        entropy: Tensor,
        number_rows: Tensor,
        number_logits: Tensor,
        log_mass: Tensor,
    ) -> None:
        with torch.no_grad():
            log_p = number_logits.log_softmax(1)
            parts = {
                "tokens": correct.new_tensor(len(correct), dtype=torch.float64),
                "token_loss": token,
                "correct": correct.sum(),
                "entropy": entropy.sum(),
                "number_loss": number,
                "digits": correct.new_tensor(len(number_rows), dtype=torch.float64),
                "digit_correct": correct[number_rows].sum(),
                "digit_entropy": -(log_p.exp() * log_p).sum(),
                "digit_mass": log_mass.exp().sum(),
                "digit_logit": number_logits.sum() / max(number_logits.shape[1], 1),
            }
            self.sums += torch.stack([parts[name].double() for name in SUM_NAMES])

    def _write_gradient(
        self,
        logits: Tensor,
        tile: int,
        lse: Tensor,
        labels: Tensor,
        d_lse: Tensor,
        d_label: Tensor,
        d_columns: Tensor,
        moved: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        """Overwrite `logits [m, V]` with the loss's gradient by the raw logits.

        dL/dz_j = d_lse q_j + d_label [j = label] + d_column_j - d_emo q_j (c_j - Σ q c), then through the
        model's scaling and capping.
        """
        columns = self.batch.token_ids.expand_as(d_columns)
        if self.kernel and moved is None:
            cross_entropy_gradient_(logits, labels)  # q - y
            logits.mul_(d_lse[:, None])
            logits.scatter_add_(1, labels[:, None], (d_label + d_lse)[:, None].to(logits.dtype))
            logits.scatter_add_(1, columns, d_columns.to(logits.dtype))
            return
        for i in range(0, len(logits), tile):
            part = slice(i, i + tile)
            z = logits[part]
            g = self._read(z)
            slope = self.transform.slope(g)
            g.sub_(lse[part, None]).exp_()
            if moved is None:
                g.mul_(d_lse[part, None])
            else:
                cosine, expected, d_emo = moved
                pull = cosine[part].to(self.stat, copy=True).sub_(expected[part, None])
                g.mul_(pull.mul_(-d_emo[part, None]).add_(d_lse[part, None]))
            g.scatter_add_(1, labels[part, None], d_label[part, None])
            g.scatter_add_(1, columns[part], d_columns[part])
            if slope is not None:
                g.mul_(slope)
            if g.data_ptr() != z.data_ptr():
                z.copy_(g)

    def _multiply(self, d_logits: Tensor, hidden: Tensor, rows: Tensor) -> None:
        """Multiply the logits' gradient `[m, V]` into the gradients of hidden states, weight and bias."""
        if self.grad_hidden is not None:
            self.grad_hidden.index_copy_(0, rows, (d_logits @ self.weight_c).to(self.hidden.dtype))
        if self.grad_bias is not None:
            self.grad_bias += d_logits.sum(0, dtype=self.stat)
        if not self.needs_weight:
            return
        if self.compute == self.stat:
            if self.grad_weight is None:
                self.grad_weight = d_logits.T @ hidden
            else:
                self.grad_weight.addmm_(d_logits.T, hidden)
            return
        # A sum over many chunks in bfloat16 loses small updates, so the accumulator is float32; slices of the
        # vocabulary keep the product's own bfloat16 result small.
        if self.grad_weight is None:
            self.grad_weight = torch.zeros_like(self.weight, dtype=self.stat)
        for i in range(0, d_logits.shape[1], WEIGHT_SLICE):
            part = slice(i, i + WEIGHT_SLICE)
            self.grad_weight[part] += d_logits[:, part].T @ hidden
