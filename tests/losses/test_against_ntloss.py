"""The package `ntloss`, by the authors of the number token loss, as an oracle on random batches."""

import pytest
import torch
import torch.nn.functional as F
from ntloss import NTLoss, NTLossDotProduct, NumberLevelLoss
from tiny import tiny_tokenizer

from numsft.losses import NUMBER_LOSSES

WIDE = 110  # a head wider than the tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def digit_ids(tokenizer):
    return torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))


def text_batch(tokenizer, seed):
    """Three rows of numbers in text, partly ignored, under random logits. `ntloss` does not shift labels."""
    rows = ["a 42 b 7 c 1234567", "12.34 x 5 y 0.125 z", "no 900 then 3.0 or 81"]
    labels = torch.tensor([tokenizer.encode(row.ljust(24), add_special_tokens=False) for row in rows])
    labels[:, -1] = -100
    labels[1, 0:2] = -100
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(*labels.shape, WIDE, generator=generator, dtype=torch.float64)
    return logits, labels


def gather(logits, labels, digit_ids):
    """What the losses take: digit logits, classes and log-mass at the digits' positions."""
    is_digit = (labels[..., None] == digit_ids).any(-1)
    at_digits = logits[is_digit]
    classes = (labels[is_digit][:, None] == digit_ids).int().argmax(-1)
    columns = at_digits[:, digit_ids]
    log_mass = columns.logsumexp(-1) - at_digits.logsumexp(-1)
    return is_digit, columns, classes, log_mass


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reweigh", [False, True])
@pytest.mark.parametrize("squash", [None, 2.0, 5.5])
def test_wasserstein_loss_equals_ntloss(tokenizer, digit_ids, seed, reweigh, squash):
    logits, labels = text_batch(tokenizer, seed)
    theirs = NTLoss(tokenizer, vocab_size=WIDE, reweigh=reweigh, squash_factor=squash)
    expected = theirs(logits, labels, reduction="none")
    is_digit, columns, classes, log_mass = gather(logits, labels, digit_ids)
    ours = NUMBER_LOSSES["ntl_was"](reweigh=reweigh, squash=squash)
    value = ours(columns, classes, torch.arange(10.0, dtype=torch.float64), log_mass=log_mass)
    assert is_digit.sum() > 20
    torch.testing.assert_close(value, expected[is_digit], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reweigh", [False, True])
@pytest.mark.parametrize(
    ("kind", "function"), [("mse", F.mse_loss), ("mae", F.l1_loss), ("huber", F.huber_loss)]
)
def test_dot_product_loss_equals_ntloss(tokenizer, digit_ids, seed, reweigh, kind, function):
    logits, labels = text_batch(tokenizer, seed)
    theirs = NTLossDotProduct(tokenizer, vocab_size=WIDE, reweigh=reweigh, loss_function=function)
    expected = theirs(logits, labels, reduction="none")
    is_digit, columns, classes, log_mass = gather(logits, labels, digit_ids)
    ours = NUMBER_LOSSES["ntl_mse"](loss=kind, reweigh=reweigh)
    value = ours(columns, classes, torch.arange(10.0, dtype=torch.float64), log_mass=log_mass)
    torch.testing.assert_close(value, expected[is_digit].double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reweigh", [False, True])
def test_gradient_over_the_whole_vocabulary_equals_that_of_ntloss(tokenizer, digit_ids, reweigh):
    logits, labels = text_batch(tokenizer, 5)
    logits.requires_grad_()
    theirs = NTLoss(tokenizer, vocab_size=WIDE, reweigh=reweigh)(logits, labels, reduction="mean")
    (expected,) = torch.autograd.grad(theirs, logits)
    _, columns, classes, log_mass = gather(logits, labels, digit_ids)
    values = torch.arange(10.0, dtype=torch.float64)
    ours = NUMBER_LOSSES["ntl_was"](reweigh=reweigh)(columns, classes, values, log_mass=log_mass)
    (gradient,) = torch.autograd.grad(ours.mean(), logits)
    torch.testing.assert_close(ours.mean(), theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-8)


def integer_runs(is_digit, point=None):
    """Place and number id of every digit, row by row; digits on both sides of `point` are one number."""
    places, numbers, starts = [], [], []
    for b, row in enumerate(is_digit.tolist()):
        t = 0
        while t < len(row):
            if not row[t]:
                t += 1
                continue
            run = []
            starts.append((b, t))
            while t < len(row) and (
                row[t] or (point is not None and point[b, t] and t + 1 < len(row) and row[t + 1])
            ):
                run.append(t)
                t += 1
            dot = next((i for i, u in enumerate(run) if not row[u]), None)
            for i in range(len(run)):
                if i != dot:
                    places.append((len(run) if dot is None else dot) - 1 - i + (dot is not None and i > dot))
                    numbers.append(len(starts) - 1)
    return torch.tensor(places), torch.tensor(numbers), starts


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("join_at_point", [False, True])
def test_number_level_loss_equals_ntloss(tokenizer, digit_ids, seed, join_at_point):
    """`ntloss` reads 12.34 as 1234 where it joins; the error is relative, so the scale cancels."""
    logits, labels = text_batch(tokenizer, seed)
    theirs = NumberLevelLoss(tokenizer, vocab_size=WIDE, reweigh=False, float_level=join_at_point)
    expected = theirs(logits, labels, reduction="none")
    is_digit, columns, classes, _ = gather(logits, labels, digit_ids)
    point = labels == tokenizer.convert_tokens_to_ids(".") if join_at_point else None
    places, numbers, starts = integer_runs(is_digit, point)
    value = NUMBER_LOSSES["ntl_number"]()(
        columns, classes, torch.arange(10.0, dtype=torch.float64), places=places, numbers=numbers
    )
    assert len(value) == (9 if join_at_point else 11)
    assert places.min() == (-3 if join_at_point else 0)
    torch.testing.assert_close(
        value, torch.stack([expected[b, t] for b, t in starts]).double(), rtol=1e-6, atol=1e-6
    )
