"""Losses with one term a whole number: the symmetric relative error and NTIL."""

import math

import pytest
import torch
import twins
from twins import DIGITS, ln9, uniform

from numsft.losses import NUMBER_LOSSES

VALUES = torch.arange(10, dtype=torch.float64)


def call(name, positions, numbers, *, seed=0, options=None, requires_grad=False):
    """`positions` holds (logits, class, place) of each digit."""
    logits = torch.tensor([z for z, _, _ in positions], dtype=torch.float64, requires_grad=requires_grad)
    value = NUMBER_LOSSES[name](**(options or {}))(
        logits,
        torch.tensor([g for _, g, _ in positions]),
        VALUES,
        places=torch.tensor([place for _, _, place in positions]),
        numbers=torch.tensor(numbers),
        generator=torch.Generator().manual_seed(seed),
    )
    return (value, logits) if requires_grad else value


def random_numbers(lengths, *, decimals=0, seed=3):
    """Digits of random numbers, as (positions, numbers); the last `decimals` of each follow a point."""
    generator = torch.Generator().manual_seed(seed)
    positions, numbers = [], []
    for number, length in enumerate(lengths):
        for j in range(length):
            z = torch.randn(10, generator=generator, dtype=torch.float64).tolist()
            g = int(torch.randint(10, (1,), generator=generator))
            positions.append((z, g, length - 1 - j - decimals))
            numbers.append(number)
    return positions, numbers


def peaked(g, predicted=None, margin=3.0):
    """One clear arg-max, so that the sampling noise of 0.01 cannot change the digit."""
    return [margin if j == (g if predicted is None else predicted) else 0.1 * math.sin(j) for j in range(10)]


def groups(positions, numbers):
    return [
        [position for position, k in zip(positions, numbers, strict=True) if k == n]
        for n in sorted(set(numbers))
    ]


def test_relative_error_of_42_is_the_published_one():
    value = call("ntl_number", [(ln9(4), 4, 1), (ln9(2), 2, 0)], [0, 0])
    assert value.tolist() == pytest.approx([0.0472589791], abs=1e-9)


@pytest.mark.parametrize("decimals", [0, 1])
def test_relative_error_equals_its_naive_twin(decimals):
    positions, numbers = random_numbers([1, 3, 2, 7, 1, 12], decimals=decimals)
    value = call("ntl_number", positions, numbers)
    expected = [twins.ntl_number(group, DIGITS) for group in groups(positions, numbers)]
    assert value.dtype == torch.float64
    assert value.tolist() == pytest.approx(expected, rel=1e-9)


def test_relative_error_has_the_gradient_of_its_value():
    positions, numbers = random_numbers([3, 1, 2])
    logits = torch.tensor([z for z, _, _ in positions], dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([g for _, g, _ in positions])
    places = torch.tensor([place for _, _, place in positions])
    assert torch.autograd.gradcheck(
        lambda z: NUMBER_LOSSES["ntl_number"]()(
            z, classes, VALUES, places=places, numbers=torch.tensor(numbers)
        ),
        logits,
    )


def test_relative_error_lies_between_nothing_and_one():
    sure = [[60.0 if j == digit else 0.0 for j in range(10)] for digit in range(10)]
    right = call("ntl_number", [(sure[4], 4, 1), (sure[2], 2, 0)], [0, 0])
    assert right.item() == pytest.approx(0.0, abs=1e-9)
    nothing_for_42 = call("ntl_number", [(sure[0], 4, 1), (sure[0], 2, 0)], [0, 0])
    assert nothing_for_42.item() == pytest.approx(1.0, abs=1e-9)
    zero_for_zero = call("ntl_number", [(sure[0], 0, 0)], [0])
    assert zero_for_zero.isfinite().all()


@pytest.mark.parametrize("name", ["ntl_number", "ntil"])
def test_each_number_has_its_own_term(name):
    """Clear digits, so that NTIL's sampling cannot make the difference."""
    positions = [
        (peaked(g), (g + 1) % 10, place) for g, place in [(4, 1), (2, 0), (7, 0), (1, 2), (0, 1), (5, 0)]
    ]
    together = call(name, positions, [0, 0, 1, 2, 2, 2])
    alone = [
        call(name, positions[:2], [0, 0]),
        call(name, positions[2:3], [0]),
        call(name, positions[3:], [0, 0, 0]),
    ]
    assert together.shape == (3,)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)


def test_relative_error_takes_number_tokens_of_several_digits():
    """Values 0..119; "1" then "042" read as places of their last digits: 42 + 1000."""
    values = torch.arange(120, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 120, generator=generator, dtype=torch.float64)
    loss = NUMBER_LOSSES["ntl_number"]()(
        logits, torch.tensor([1, 42]), values, places=torch.tensor([3, 0]), numbers=torch.tensor([0, 0])
    )
    positions = [(logits[0].tolist(), 1, 3), (logits[1].tolist(), 42, 0)]
    assert loss.item() == pytest.approx(twins.ntl_number(positions, values.tolist()), rel=1e-9)


@pytest.mark.parametrize("predicted", [(4, 2), (4, 0), (9, 9), (0, 0)])
def test_ntil_equals_its_naive_twin_where_the_digits_are_clear(predicted):
    positions = [(peaked(4, predicted[0]), 4, 1), (peaked(2, predicted[1]), 2, 0)]
    assert call("ntil", positions, [0, 0]).item() == pytest.approx(twins.ntil(positions), abs=1e-9)


def test_ntil_of_40_for_42_has_the_published_terms():
    positions = [(peaked(4, 4), 4, 1), (peaked(2, 0), 2, 0)]
    emd, _, _ = twins.ntil_parts(positions)
    expected = emd + 0.2 * 0.0465116279 + 0.2 * 0.0476280490
    assert call("ntil", positions, [0, 0]).item() == pytest.approx(expected, abs=1e-9)


def test_ntil_gradient_is_that_of_its_distance_where_the_digits_are_clear():
    """The arg-max is passed straight through a softmax of temperature 0.1, which is flat there."""
    positions = [(peaked(4), 4, 1), (peaked(2, 7), 2, 0)]
    value, logits = call("ntil", positions, [0, 0], requires_grad=True)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    for row, (z, g, place) in zip(gradient.tolist(), positions, strict=True):
        p = twins.softmax(z)
        w = sum(x * abs(j - g) for j, x in enumerate(p))
        closed = [1.2**place / 2 * x * (abs(j - g) - w) for j, x in enumerate(p)]
        assert row == pytest.approx(closed, abs=1e-6)


def test_ntil_draws_the_same_digits_from_the_same_seed_and_others_from_another():
    positions = [(uniform(), g, place) for g, place in [(1, 3), (2, 2), (3, 1), (4, 0)]]
    first = call("ntil", positions, [0] * 4, seed=7)
    assert torch.equal(first, call("ntil", positions, [0] * 4, seed=7))
    others = {call("ntil", positions, [0] * 4, seed=seed).item() for seed in range(8)}
    assert len(others) > 1


def test_ntil_leaves_the_global_random_state_alone_when_a_generator_is_given():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    call("ntil", [(uniform(), 4, 1), (uniform(), 2, 0)], [0, 0])
    assert torch.equal(before, torch.get_rng_state())


def test_ntil_is_at_least_its_distance_term_whatever_is_drawn():
    """At uniform logits the distance term of "42" is 3.05, and the others are bounded by 99 against 42."""
    for seed in range(5):
        value = call("ntil", [(uniform(), 4, 1), (uniform(), 2, 0)], [0, 0], seed=seed).item()
        assert 3.05 - 1e-9 <= value <= 3.05 + 0.2 * 1.0 + 0.2 * math.log(43)


def test_ntil_is_zero_at_certainty_of_the_right_digits():
    sure = [(peaked(4, margin=60.0), 4, 1), (peaked(2, margin=60.0), 2, 0)]
    assert call("ntil", sure, [0, 0]).item() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["ntl_number", "ntil"])
def test_long_numbers_and_decimals_stay_finite(name):
    for decimals in (0, 5, 30):
        positions, numbers = random_numbers([30, 1], decimals=decimals)
        value, logits = call(name, positions, numbers, requires_grad=True)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert value.isfinite().all()
        assert gradient.isfinite().all()
