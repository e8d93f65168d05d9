"""The chunked head against plain autograd on full logits."""

import dataclasses

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from numsft.head import SUM_NAMES, LogitTransform, chunked_head
from numsft.head_pass import largest_logit
from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES
from numsft.microbatch import HeadBatch
from numsft.objective import Objective

V, H, T = 61, 16, 40
TOKEN_IDS = torch.tensor([7, 3, 50, 20, 21, 22, 23, 24, 1, 60])  # in no order
VALUES = torch.arange(10.0)
PLAIN = LogitTransform()


def make_batch(seed=0, n=29, without_numbers=False, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(T, generator=generator)[:n].sort().values
    labels = torch.randint(0, V, (n,), generator=generator)
    labels[::3] = TOKEN_IDS[torch.randint(0, 10, (len(labels[::3]),), generator=generator)]
    if without_numbers:
        labels[torch.isin(labels, TOKEN_IDS)] = 0
    match = labels[:, None] == TOKEN_IDS
    number_rows = match.any(1).nonzero()[:, 0]
    m = len(number_rows)
    return HeadBatch(
        length=T,
        rows=rows,
        labels=labels,
        number_rows=number_rows,
        classes=match[number_rows].int().argmax(1),
        weights=torch.rand(m, generator=generator) + 0.5,
        places=torch.arange(m) % 3,
        numbers=torch.arange(m) // 3,
        token_scale=torch.tensor(1 / 97.0),
        number_scale=torch.tensor(0.3 / 13.0),
        number_count=torch.tensor(float(m)),
        token_ids=TOKEN_IDS,
        values=VALUES.to(dtype),
        documents=torch.arange(m) // 6,
        row_keys=torch.arange(m) // 6,
    )


def earth_mover_distance(z, weight, labels):
    """EMO's adaptive form in autograd: the label's own mass moves the value and not the gradient."""
    unit = torch.nn.functional.normalize(weight.detach(), dim=1)
    cosine = unit[labels] @ unit.T
    q = z.softmax(1)
    own = torch.nn.functional.one_hot(labels, len(weight)) * q.detach()
    return 1 - ((q - own) * cosine).sum(1)


def draws(batch):
    """The noise that the head gives a stochastic loss: a seed for each row."""
    parts = []
    for key in batch.row_keys.unique().tolist():
        generator = torch.Generator().manual_seed(hash((batch.seed, key)) % 2**63)
        parts.append(torch.empty(int((batch.row_keys == key).sum()), 10).exponential_(generator=generator))
    return torch.cat(parts)


def full_logits(hidden, weight, bias, batch, objective, transform=PLAIN):
    """What the head replaces: all logits at once, in autograd."""
    z = hidden[batch.rows] @ weight.T
    if bias is not None:
        z = z + bias
    z = z * transform.scale
    if transform.softcap is not None:
        z = transform.softcap * torch.tanh(z / transform.softcap)
    lse = z.logsumexp(1)
    ce = lse - z.gather(1, batch.labels[:, None])[:, 0]
    token = objective.token_loss(ce, earth_mover_distance(z, weight, batch.labels)).sum()
    number = z.sum() * 0
    s = z[batch.number_rows][:, batch.token_ids]
    if objective.unit == "number":
        mean_ce = ce.mean() if objective.number_loss.needs_token_loss else None
        noise = draws(batch) if objective.number_loss.stochastic else None
        number = objective.number_loss(
            s, batch.classes, batch.values, batch.places, batch.numbers, generator=noise, ce=mean_ce
        ).sum()
    elif objective.number_loss is not None:
        log_mass = s.logsumexp(1) - lse[batch.number_rows]
        terms = objective.number_loss(
            s, batch.classes, batch.values, log_mass if objective.number_loss.needs_log_mass else None
        )
        number = (terms * batch.weights).sum()
    p = s.softmax(1)
    sums = {
        "tokens": len(ce),
        "token_loss": token,
        "correct": (z.argmax(1) == batch.labels).sum(),
        "entropy": torch.distributions.Categorical(logits=z).entropy().sum(),
        "number_loss": number,
        "digits": len(s),
        "digit_correct": (z.argmax(1) == batch.labels)[batch.number_rows].sum(),
        "digit_entropy": -(p * p.log()).sum(),
        "digit_mass": z.softmax(1)[batch.number_rows][:, batch.token_ids].sum(),
        "digit_logit": s.mean(1).sum(),
    }
    return token * batch.token_scale + number * batch.number_scale, sums


def both(batch, objective, *, bias=False, transform=PLAIN, dtype=torch.float32, chunk=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(T, H, generator=generator, dtype=dtype).requires_grad_()
    weight = (torch.randn(V, H, generator=generator, dtype=dtype) * 0.5).requires_grad_()
    b = torch.randn(V, generator=generator, dtype=dtype).requires_grad_() if bias else None
    leaves = [x for x in (hidden, weight, b) if x is not None]
    loss, sums = chunked_head(hidden, weight, b, batch, objective, transform, chunk_size=chunk)
    grads = torch.autograd.grad(loss, leaves)
    oracle, oracle_sums = full_logits(hidden, weight, b, batch, objective, transform)
    return (loss, grads, sums), (oracle, torch.autograd.grad(oracle, leaves), oracle_sums)


def assert_same(ours, oracle, tolerance):
    torch.testing.assert_close(ours[0], oracle[0], rtol=tolerance, atol=0)
    for mine, theirs in zip(ours[1], oracle[1], strict=True):
        assert (mine - theirs).norm() <= tolerance * theirs.norm()
    for name, value in zip(SUM_NAMES, ours[2].tolist(), strict=True):
        assert value == pytest.approx(
            float(torch.as_tensor(oracle[2][name]).detach()), rel=10 * tolerance, abs=1e-12
        ), name


TRANSFORMS = {
    "plain": LogitTransform(),
    "scaled": LogitTransform(scale=0.25),
    "softcapped": LogitTransform(softcap=3.0),
    "both": LogitTransform(scale=0.5, softcap=2.0),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_gradients_and_sums_equal_full_logits(transform, bias, dtype):
    ours, oracle = both(
        make_batch(dtype=dtype), Objective.build("ce", "del"), bias=bias, transform=transform, dtype=dtype
    )
    assert_same(ours, oracle, 1e-5 if dtype == torch.float32 else 1e-7)  # the scales are float32


@pytest.mark.parametrize("name", NUMBER_LOSSES)
@pytest.mark.parametrize("token_loss", TOKEN_LOSSES)
def test_every_number_loss_combines_with_every_token_loss(name, token_loss):
    ours, oracle = both(make_batch(), Objective.build(token_loss, name))
    assert_same(ours, oracle, 1e-5)


@pytest.mark.parametrize("name", ["ntil", "ntl_number"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_number_level_loss_never_splits_a_number(name, transform):
    ours, oracle = both(make_batch(), Objective.build("ce", name), bias=True, transform=transform, chunk=2)
    assert_same(ours, oracle, 1e-5)


def test_ntil_scales_itself_by_the_cross_entropy_of_the_micro_batch():
    objective = Objective.build("ce", "ntil", number_loss_kwargs={"self_scale": True})
    ours, oracle = both(make_batch(), objective)
    assert_same(ours, oracle, 1e-5)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_emo_equals_full_logits(mode, transform):
    objective = Objective.build("emo", "del", token_loss_kwargs={"mode": mode})
    ours, oracle = both(make_batch(), objective, transform=transform)
    assert_same(ours, oracle, 1e-5)


def test_emo_survives_a_padded_vocabulary_row_of_zeros():
    # A zero row normalised to NaN poisons every cosine; padded vocabularies have such rows.
    weight = torch.randn(V, H)
    weight[40:] = 0
    weight.requires_grad_()
    hidden = torch.randn(T, H, requires_grad=True)
    loss, _ = chunked_head(hidden, weight, None, make_batch(), Objective.build("emo", "del"))
    loss.backward()
    assert loss.isfinite() and hidden.grad.isfinite().all() and weight.grad.isfinite().all()


def test_emo_measures_in_the_embedding_that_it_is_given():
    objective, batch = Objective.build("emo", None), make_batch()
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H)
    frozen = torch.randn(V, H)
    loss, _ = chunked_head(hidden, weight, None, batch, objective, cost_embedding=frozen)
    z = hidden[batch.rows] @ weight.T
    ce = torch.nn.functional.cross_entropy(z, batch.labels, reduction="none")
    oracle = objective.token_loss(ce, earth_mover_distance(z, frozen, batch.labels)).sum() * batch.token_scale
    (ours,), (theirs,) = torch.autograd.grad(loss, hidden), torch.autograd.grad(oracle, hidden)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        found = [t.numel() for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.elements = max([self.elements, *found])
        return result


@pytest.mark.parametrize("token_loss", TOKEN_LOSSES)
@pytest.mark.parametrize("name", NUMBER_LOSSES)
def test_no_tensor_is_as_large_as_tokens_times_vocabulary(token_loss, name):
    chunk, tokens = 4, 29
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    with LargestTensor() as largest:
        loss, _ = chunked_head(
            hidden, weight, None, make_batch(n=tokens), Objective.build(token_loss, name), chunk_size=chunk
        )
        loss.backward()
    assert max(chunk * V, V * H) == largest.elements < tokens * V


@pytest.mark.parametrize("chunk", [1, 7, 29, 1000])
def test_the_chunk_size_changes_nothing(chunk):
    ours, oracle = both(make_batch(), Objective.build("ce", "del"), chunk=chunk)
    assert_same(ours, oracle, 1e-5)


def test_a_batch_without_numbers_is_the_token_loss_alone():
    ours, oracle = both(make_batch(without_numbers=True), Objective.build("ce", "del"))
    assert_same(ours, oracle, 1e-5)
    plain, _ = both(make_batch(without_numbers=True), Objective.build("ce", None))
    torch.testing.assert_close(ours[0], plain[0], rtol=0, atol=0)


def test_a_batch_without_labels_gives_an_attached_zero():
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    loss, sums = chunked_head(hidden, weight, None, make_batch(n=0), Objective.build("ce", "del"))
    loss.backward()
    assert loss.item() == 0 and sums.tolist() == [0.0] * len(SUM_NAMES)
    assert hidden.grad.abs().max() == 0 and weight.grad.abs().max() == 0


def test_a_frozen_head_gets_no_gradient_and_the_hidden_states_the_same_one():
    batch, objective = make_batch(), Objective.build("ce", "del")
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    chunked_head(hidden, weight, None, batch, objective)[0].backward()
    frozen_hidden, frozen_weight = hidden.detach().clone().requires_grad_(), weight.detach().clone()
    chunked_head(frozen_hidden, frozen_weight, None, batch, objective)[0].backward()
    torch.testing.assert_close(frozen_hidden.grad, hidden.grad, rtol=0, atol=0)
    assert frozen_weight.grad is None


def test_without_gradients_the_loss_is_the_same_and_detached():
    batch, objective = make_batch(), Objective.build("ce", "del")
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    trained, sums = chunked_head(hidden, weight, None, batch, objective, chunk_size=8)
    with torch.no_grad():
        evaluated, evaluated_sums = chunked_head(hidden, weight, None, batch, objective, chunk_size=8)
    assert not evaluated.requires_grad
    torch.testing.assert_close(evaluated, trained.detach(), rtol=0, atol=0)
    torch.testing.assert_close(evaluated_sums, sums, rtol=0, atol=0)


def test_the_gradient_is_scaled_by_what_comes_back():
    batch, objective = make_batch(), Objective.build("ce", "del")
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    once = torch.autograd.grad(chunked_head(hidden, weight, None, batch, objective)[0], (hidden, weight))
    loss = chunked_head(hidden, weight, None, batch, objective)[0]
    for mine, theirs in zip(torch.autograd.grad(3 * loss, (hidden, weight)), once, strict=True):
        torch.testing.assert_close(mine, 3 * theirs)


def test_a_second_backward_pass_is_refused():
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    loss, _ = chunked_head(hidden, weight, None, make_batch(), Objective.build("ce", "del"))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward pass"):
        loss.backward()


def test_an_empty_weight_names_zero3():
    # Liger-Kernel#767: a partitioned head used to end in a ZeroDivisionError inside a kernel.
    with pytest.raises(ValueError, match="ZeRO-3"):
        chunked_head(torch.randn(T, H), torch.empty(0, H), None, make_batch(), Objective.build("ce", "del"))


@pytest.mark.parametrize("autocast", [False, True], ids=["bf16 weights", "bf16 autocast"])
def test_bfloat16_gradients_stay_close_to_float64(autocast):
    batch, objective = make_batch(), Objective.build("ce", "del")
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(T, H, generator=generator).bfloat16()
    weight = torch.randn(V, H, generator=generator).bfloat16()
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    oracle, _ = full_logits(*exact, None, batch, objective)
    oracle_grads = torch.autograd.grad(oracle, exact)
    inputs = [(x.float() if autocast else x).requires_grad_() for x in (hidden, weight)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss, _ = chunked_head(*inputs, None, batch, objective, chunk_size=8)
    grads = torch.autograd.grad(loss, inputs)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(oracle.item(), rel=1e-2)
    for mine, theirs, leaf in zip(grads, oracle_grads, inputs, strict=True):
        assert mine.dtype == leaf.dtype
        assert (mine.double() - theirs).norm() <= 2e-2 * theirs.norm()


def test_of_equal_logits_the_one_that_greedy_decoding_takes_counts():
    batch = make_batch()
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(T, H, generator=generator).bfloat16()
    hidden[:, 0] = 1
    weight = (torch.randn(V, H, generator=generator) * 0.005).bfloat16()
    weight[:, 0] = 30  # where the steps of bfloat16 are 0.125
    logits = hidden[batch.rows] @ weight.T
    largest = logits == logits.amax(1, keepdim=True)
    first, last = largest.int().argmax(1), V - 1 - largest.flip(1).int().argmax(1)
    even = torch.arange(len(logits)) % 2 == 0
    batch = dataclasses.replace(batch, labels=torch.where(even, first, last))
    greedy = batch.labels == first
    assert greedy.sum() < len(greedy) and greedy[batch.number_rows].sum() < len(batch.number_rows)
    _, sums = chunked_head(hidden, weight, None, batch, Objective.build("ce", "del"), chunk_size=8)
    found = dict(zip(SUM_NAMES, sums.tolist(), strict=True))
    assert found["correct"] == greedy.sum() == (logits.argmax(1) == batch.labels).sum()
    assert found["digit_correct"] == greedy[batch.number_rows].sum()


def test_the_largest_logit_leaves_the_logits_as_they_were():
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0], [5.0, 1.0, 0.0], [-torch.inf] * 3])
    for labels, right in (([1, 0, 0, 0], [True] * 4), ([2, 1, 1, 2], [False] * 4)):
        given = logits.clone()
        top, correct = largest_logit(given, torch.tensor(labels))
        assert torch.equal(given, logits)
        assert top.tolist() == [3.0, 2.0, 5.0, -torch.inf]
        assert correct.tolist() == right


def test_float16_gradients_of_a_large_batch_do_not_underflow():
    tiny = torch.tensor(1e-7)
    batch = dataclasses.replace(make_batch(), token_scale=tiny, number_scale=tiny)
    objective = Objective.build("ce", "del")
    hidden, weight = torch.randn(T, H).half().requires_grad_(), torch.randn(V, H).half().requires_grad_()
    loss, _ = chunked_head(hidden, weight, None, batch, objective)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    oracle = torch.autograd.grad(full_logits(*exact, None, batch, objective)[0], exact)
    scaled = torch.autograd.grad(loss * 2**16, (hidden, weight))  # as a gradient scaler does
    for mine, theirs in zip(scaled, oracle, strict=True):
        assert (mine.double() / 2**16 - theirs).norm() <= 3e-2 * theirs.norm()


def test_the_heads_gradient_becomes_grad_without_a_copy():
    hidden, weight = torch.randn(T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    loss, _ = chunked_head(hidden, weight, None, make_batch(), Objective.build("ce", "del"))
    pointer = loss.grad_fn.grads[1].data_ptr()
    loss.backward()
    assert weight.grad.data_ptr() == pointer
