"""Losses that know how far a digit is off: closed-form gradients, false minima, capped confidence."""

import math

import pytest
import torch
import twins
from calls import number_loss, one_position
from twins import DIGITS, GEN, ln9, uniform


@pytest.mark.parametrize("g", range(10))
def test_wasserstein_cost_matrix_has_the_published_row_sums(g):
    value, _ = one_position("ntl_was", {}, uniform(), g)
    assert value * 10 == pytest.approx([45, 37, 31, 27, 25, 25, 27, 31, 37, 45][g], abs=1e-9)


def test_wasserstein_gradient_is_cost_minus_mean():
    """p_i (C_i - W)."""
    value, gradient = one_position("ntl_was", {}, GEN, 3)
    expected = [p * (abs(i - 3) - value) for i, p in enumerate(twins.softmax(GEN))]
    assert gradient.tolist() == pytest.approx(expected, abs=1e-9)


def test_wasserstein_equals_the_distance_of_the_cumulative_distributions():
    p = twins.softmax(GEN)
    distance = sum(abs(sum(p[: i + 1]) - (1.0 if i >= 3 else 0.0)) for i in range(10))
    assert one_position("ntl_was", {}, GEN, 3)[0] == pytest.approx(distance, abs=1e-9)


def test_power_zero_is_the_probability_of_being_wrong():
    value, _ = one_position("ntl_was", {"power": 0.0}, ln9(), 3)
    assert value == pytest.approx(0.5, abs=1e-12)


def test_modulus_goes_round_the_clock():
    """With modulus 10 a nine is one step away from a zero."""
    z = [0.0] * 10
    z[9] = 60.0
    assert one_position("ntl_was", {"modulus": 10.0}, z, 0)[0] == pytest.approx(1.0, abs=1e-9)
    assert one_position("ntl_was", {}, z, 0)[0] == pytest.approx(9.0, abs=1e-9)
    expected = sum(min(d, 10 - d) for d in range(10)) / 10
    assert one_position("ntl_was", {"modulus": 10.0}, uniform(), 4)[0] == pytest.approx(expected, abs=1e-9)


def test_squashing_a_range_of_nine_to_nine_changes_nothing(batch, digits):
    logits, classes, _ = batch
    torch.testing.assert_close(
        number_loss("ntl_was", {"squash": 9.0}, logits, classes, digits),
        number_loss("ntl_was", {}, logits, classes, digits),
    )


@pytest.mark.parametrize(
    ("name", "options", "largest"),
    [
        ("ntl_was", {}, 9.0),
        ("ntl_was", {"squash": 2.0}, 2.0),
        ("ntl_was", {"power": 2.0}, 81.0),
        ("ntl_mse", {}, 81.0),
        ("ntl_mse", {"loss": "mae"}, 9.0),
        ("ntl_mse", {"loss": "huber"}, 8.5),
    ],
)
def test_reweighing_takes_text_to_be_a_little_worse_than_the_worst_number(name, options, largest):
    reweigh = {**options, "reweigh": True}
    assert one_position(name, reweigh, GEN, 3, -800.0)[0] == pytest.approx(1.01 * largest, abs=1e-9)
    plain, _ = one_position(name, options, GEN, 3)
    assert one_position(name, reweigh, GEN, 3, 0.0)[0] == pytest.approx(plain, abs=1e-9)
    half, _ = one_position(name, reweigh, GEN, 3, math.log(0.5))
    assert half == pytest.approx(0.5 * plain + 0.505 * largest, abs=1e-9)


def test_mse_gradient_is_the_closed_form():
    """2 (ŷ - y) p_i (v_i - ŷ)."""
    p = twins.softmax(GEN)
    expected = sum(i * x for i, x in enumerate(p))
    assert expected == pytest.approx(4.7797603827, abs=1e-9)
    _, gradient = one_position("ntl_mse", {}, GEN, 3)
    closed = [2 * (expected - 3) * x * (i - expected) for i, x in enumerate(p)]
    assert gradient.tolist() == pytest.approx(closed, abs=1e-9)


@pytest.mark.parametrize("kind", ["mse", "mae", "huber"])
def test_mse_has_a_false_minimum_that_wasserstein_sees(kind):
    """Half on 0 and half on 8 with the right digit 4: the mean is right and no digit is."""
    z = [-60.0] * 10
    z[0] = z[8] = 60.0
    assert one_position("ntl_mse", {"loss": kind}, z, 4)[0] == pytest.approx(0.0, abs=1e-9)
    assert one_position("ntl_was", {}, z, 4)[0] == pytest.approx(4.0, abs=1e-9)


def test_dist2_gradient_is_prediction_minus_soft_target():
    for tau in (1.0, 4.0):
        _, gradient = one_position("dist2", {"tau": tau}, GEN, 3)
        pairs = zip(twins.softmax(GEN), twins.dist2_target(3, DIGITS, tau), strict=True)
        assert gradient.tolist() == pytest.approx([p - q for p, q in pairs], abs=1e-9)


def test_dist2_caps_confidence():
    """Certainty of the right digit costs more than the soft target, whose largest probability is 0.56."""
    soft = [math.log(q) for q in twins.dist2_target(3, DIGITS)]
    sure = [20.0 if j == 3 else 0.0 for j in range(10)]
    assert one_position("dist2", {}, soft, 3)[0] == pytest.approx(0.0, abs=1e-9)
    assert one_position("dist2", {}, sure, 3)[0] > 1.0


def test_dist2_over_the_whole_vocabulary_adds_the_missing_mass():
    restricted, _ = one_position("dist2", {}, GEN, 3)
    for mass in (1.0, 0.5, 1e-6):
        full, _ = one_position("dist2", {"full_vocab": True}, GEN, 3, math.log(mass))
        assert full == pytest.approx(restricted - math.log(mass), abs=1e-9)


def test_smoothing_equals_dist2_up_to_the_entropy_of_the_target():
    """τ = 2 σ²; cross-entropy is KL plus the entropy of the soft target, and the text's mass is paid for."""
    target = twins.gaussian_target(3, DIGITS, 1.5)
    entropy = -sum(q * math.log(q) for q in target if q > 0)
    smooth, _ = one_position("gaussian_smoothing", {"sigma": 1.5}, GEN, 3, math.log(0.25))
    kl, _ = one_position("dist2", {"tau": 4.5}, GEN, 3)
    assert smooth == pytest.approx(kl + entropy - math.log(0.25), abs=1e-9)


def test_smmd_gradient_is_the_closed_form():
    """G = 2 M r and dL/dz_j = p_j (G_j - Σ p_i G_i), with M = K + a (diag(deg) - K)."""
    _, _, a = twins.smmd_parts(GEN, 3, DIGITS)
    gram = [[math.exp(-((i - j) ** 2) / 8) for j in range(10)] for i in range(10)]
    p = twins.softmax(GEN)
    r = [x - (1.0 if j == 3 else 0.0) for j, x in enumerate(p)]
    pull = []
    for i in range(10):
        smooth = sum(gram[i][j] * (r[i] - r[j]) for j in range(10))
        pull.append(2 * (sum(gram[i][j] * r[j] for j in range(10)) + a * smooth))
    mean = sum(x * y for x, y in zip(p, pull, strict=True))
    _, gradient = one_position("smmd", {}, GEN, 3)
    assert gradient.tolist() == pytest.approx(
        [x * (y - mean) for x, y in zip(p, pull, strict=True)], abs=1e-9
    )


def test_a_set_of_one_bandwidth_is_that_bandwidth(batch, digits):
    logits, classes, _ = batch
    torch.testing.assert_close(
        number_loss("smmd", {"sigma": (2.0,)}, logits, classes, digits),
        number_loss("smmd", {}, logits, classes, digits),
    )


def test_crps_is_proper():
    """Drawn targets of distribution q: the expected score is least where the prediction is q itself."""
    q = torch.softmax(torch.tensor(GEN, dtype=torch.float64), 0)
    digits = torch.arange(10, dtype=torch.float64)
    logits = torch.tensor([GEN] * 10, dtype=torch.float64)
    logits.requires_grad_()
    scores = number_loss("crps", {}, logits, torch.arange(10), digits)
    (gradient,) = torch.autograd.grad((q * scores).sum(), logits)
    assert gradient.sum(0).abs().max() < 1e-12


def test_digit_cross_entropy_is_cross_entropy_over_the_ten_digits(batch, digits):
    logits, classes, _ = batch
    expected = [-twins.log_softmax(z)[g] for z, g in zip(logits.tolist(), classes.tolist(), strict=True)]
    assert number_loss("digit_ce", {}, logits, classes, digits).tolist() == pytest.approx(expected, abs=1e-9)
