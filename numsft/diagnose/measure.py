"""What a model's logits are at every number of a text, and what a number loss makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from numsft.errors import UserError
from numsft.numerals import IGNORED, NumberVocab, ignore_document_starts, number_targets
from numsft.objective import Objective

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_ROW = 512
_LOGITS_AT_ONCE = 1 << 25


@dataclass(frozen=True, eq=False)
class Readings:
    """What was read off a text: N predicted tokens, M of them number tokens, of a vocabulary of C.

    Attributes:
        rows: Rows of the text.
        numbers: Numbers in it.
        logits: `[M, C]` float32, logits of the number tokens at the number positions.
        log_rest: `[M]` float32, log-sum-exp of the logits of all other tokens.
        classes: `[M]` int64, index of the right number token.
        places: `[M]` int64, its decimal place.
        ids: `[M]` int64, contiguous ids of the numbers.
        weights: `[M]` float32, the place weights.
        correct: `[M]` bool, whether the label has the highest logit of the whole vocabulary.
        entropy: `[M]` float32, entropy of the full softmax at the number positions, nats.
        other_entropy: `[N - M]` float32, the same at all other predicted tokens.
        token_loss: Mean cross-entropy of the N tokens, nats.
        denominator: S, what the objective divides the number loss by.
    """

    rows: int
    numbers: int
    logits: Tensor
    log_rest: Tensor
    classes: Tensor
    places: Tensor
    ids: Tensor
    weights: Tensor
    correct: Tensor
    entropy: Tensor
    other_entropy: Tensor
    token_loss: float
    denominator: float

    @property
    def tokens(self) -> int:
        """N, the predicted tokens."""
        return len(self.entropy) + len(self.other_entropy)

    @property
    def log_mass(self) -> Tensor:
        """`[M]`, log of the full softmax's mass on the number tokens."""
        return _log_mass(self.logits, self.log_rest)

    @property
    def subspace_entropy(self) -> Tensor:
        """`[M]`, entropy of the softmax over the number tokens alone, nats."""
        log_p = self.logits.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1)


@torch.no_grad()
def read_logits(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    vocab: NumberVocab,
    rows: Sequence[str],
    objective: Objective,
) -> Readings:
    """Run the rows through the model, teacher-forced, each alone; only number columns and sums are kept.

    Args:
        model: A causal language model, adapted or not.
        tokenizer: Its tokenizer; special tokens are added as it does by itself.
        vocab: The tokenizer's number tokens.
        rows: Texts; each is cut after `LONGEST_ROW` tokens into further rows.
        objective: For place weights and the denominator.

    Raises:
        UserError: If the text holds no number to predict, the head does not reach the number tokens, or
            logits are not finite.
    """
    width = _rows_of_head(model)
    if width <= int(vocab.token_ids.max()):
        raise UserError(
            f"the LM head has {width} rows but the tokenizer's number tokens reach id "
            f"{int(vocab.token_ids.max())}: use the model's own tokenizer"
        )
    device = model.get_input_embeddings().weight.device
    vocab = vocab.to(device)
    parts: list[dict[str, Tensor]] = []
    n_rows = n_numbers = 0
    token_loss, denominator = 0.0, 0.0
    for input_ids in _batches(tokenizer, rows, model.config, width):
        input_ids = input_ids.to(device)
        present = input_ids != IGNORED
        output = model(
            input_ids=input_ids.masked_fill(~present, 0), attention_mask=present.long(), use_cache=False
        )
        logits = output.logits[:, -input_ids.shape[1] :]  # prompt tuning puts virtual tokens in front
        labels = ignore_document_starts(input_ids)
        targets = number_targets(labels, vocab)
        trained = labels[:, 1:] != IGNORED
        is_number = targets.mask[:, 1:][trained]
        z = logits[:, :-1][trained].float()  # [N, V]
        if not z.amax().isfinite():  # one logit of -inf is a mask
            raise UserError("the model's logits on this text are not finite: try --dtype float32")
        log_q = z.log_softmax(-1)
        label = labels[:, 1:][trained][:, None]
        entropy = torch.special.entr(log_q.exp()).sum(-1)
        token_loss -= float(log_q.gather(1, label).sum(dtype=torch.float64))
        denominator += float(objective.denominator(targets, trained.sum()))
        numbers = z[is_number]
        parts.append(
            {
                "logits": numbers[:, vocab.token_ids],
                "log_rest": numbers.index_fill(1, vocab.token_ids, -torch.inf).logsumexp(1),
                "classes": targets.classes[:, 1:][trained][is_number],
                "places": targets.places[:, 1:][trained][is_number],
                "ids": targets.numbers[:, 1:][trained][is_number] + n_numbers,
                "weights": objective.place_weights(targets)[:, 1:][trained][is_number],
                "correct": numbers.argmax(1) == label[is_number, 0],
                "entropy": entropy[is_number],
                "other_entropy": entropy[~is_number],
            }
        )
        n_rows += len(input_ids)
        n_numbers += int(targets.numbers.max()) + 1
    columns = {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]} if parts else {}
    if not parts or len(columns["classes"]) == 0:
        raise UserError(
            "the text holds no number after the first token of a line: give a text with numbers in it"
        )
    n_tokens = len(columns["entropy"]) + len(columns["other_entropy"])
    return Readings(
        rows=n_rows, numbers=n_numbers, token_loss=token_loss / n_tokens, denominator=denominator, **columns
    )


def _batches(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[str], config: Any, width: int
) -> Iterator[Tensor]:
    """Yield `[batch, seq]` ids, -100 at the right of shorter rows, as many rows as memory should hold."""
    longest = min(
        LONGEST_ROW, getattr(config.get_text_config(), "max_position_embeddings", None) or LONGEST_ROW
    )
    encoded = tokenizer(list(rows), return_attention_mask=False, verbose=False)["input_ids"]
    pieces = [ids[i : i + longest] for ids in encoded for i in range(0, len(ids), longest)]
    pieces = [ids for ids in pieces if len(ids) > 1]
    budget = max(longest, _LOGITS_AT_ONCE // width)  # tokens
    batch: list[Tensor] = []
    for ids in pieces:
        if batch and (len(batch) + 1) * max(len(ids), *(len(row) for row in batch)) > budget:
            yield torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=IGNORED)
            batch = []
        batch.append(torch.tensor(ids))
    if batch:
        yield torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=IGNORED)


def _rows_of_head(model: Any) -> int:
    head = model.get_output_embeddings()
    if head is None:
        raise UserError(
            f"{type(model).__name__} has no LM head, so it predicts no digits: name a causal language model"
        )
    return int(getattr(head, "out_features", 0) or head.weight.shape[0])


def _log_mass(logits: Tensor, log_rest: Tensor) -> Tensor:
    inside = logits.logsumexp(-1)
    return inside - torch.logaddexp(inside, log_rest)


@dataclass(frozen=True)
class LossEffect:
    """A number loss on a text.

    Attributes:
        value: The mean as training logs it: weighted by place, divided by S, without alpha.
        wrong_way: Share of number positions where a step against its gradient lowers the right token's logit.
        wrong_way_combined: The same for mean cross-entropy + alpha * number loss, the text being one step.
    """

    value: float
    wrong_way: float
    wrong_way_combined: float


def loss_effect(readings: Readings, vocab: NumberVocab, objective: Objective) -> LossEffect:
    """Differentiate the number loss by the number columns, in float64; `log_mass` follows the columns.

    Args:
        readings: What was read off the text.
        vocab: The number tokens.
        objective: A token loss of `ce` and a number loss.
    """
    loss = objective.number_loss
    assert loss is not None
    z = readings.logits.double().requires_grad_()
    log_rest, values = readings.log_rest.double(), vocab.values.double()
    if loss.unit == "number":
        generator = torch.Generator().manual_seed(0)
        terms = loss(  # type: ignore[call-arg]
            z,
            readings.classes,
            values,
            places=readings.places,
            numbers=readings.ids,
            generator=generator,
            ce=torch.tensor(readings.token_loss),
        )
    else:
        log_mass = _log_mass(z, log_rest) if loss.needs_log_mass else None
        terms = loss(z, readings.classes, values, log_mass) * readings.weights.double()
    number = terms.sum() / readings.denominator
    label = readings.classes[:, None]
    log_sum = torch.logaddexp(z.logsumexp(-1), log_rest)
    cross_entropy = (log_sum - z.gather(1, label)[:, 0]).sum() / readings.tokens
    (number_grad,) = torch.autograd.grad(number, z)
    (token_grad,) = torch.autograd.grad(cross_entropy, z)
    up = number_grad.gather(1, label)
    combined = token_grad.gather(1, label) + objective.weight * up
    return LossEffect(
        value=float(number.detach()),
        wrong_way=float((up > 0).double().mean()),
        wrong_way_combined=float((combined > 0).double().mean()),
    )
