"""DEL, its distance variant, digit entropy and the digital focal loss: closed forms and known behaviour."""

import math

import pytest
import torch
import twins
from calls import number_loss, one_position
from twins import DIGITS, GEN, ln9, uniform

from numsft.losses import NUMBER_LOSSES


def closed_form(z, g, *, detach_weight=False, level=None):
    """dR/dz_j = p_j (B_j - R + σ_j - y_j); with the weight p held constant only p_j (σ_j - y_j) is left."""
    centred = z if level is None else [x - sum(z) / len(z) + level for x in z]
    p, b = twins.softmax(centred), twins.bce(centred, g)
    r = sum(x * y for x, y in zip(p, b, strict=True))
    gradient = []
    for j in range(len(z)):
        slope = p[j] * (twins.sigmoid(centred[j]) - (1.0 if j == g else 0.0))
        gradient.append(slope if detach_weight else slope + p[j] * (b[j] - r))
    if level is not None:  # the mean that is taken away carries gradient
        mean = sum(gradient) / len(gradient)
        gradient = [x - mean for x in gradient]
    return gradient


@pytest.mark.parametrize("detach_weight", [False, True])
@pytest.mark.parametrize("level", [None, 0.0, 12.0])
def test_gradient_is_the_closed_form(detach_weight, level, batch, digits):
    logits, classes, _ = batch
    logits = logits.clone().requires_grad_()
    options = {"detach_weight": detach_weight, "level": level}
    (gradient,) = torch.autograd.grad(number_loss("del", options, logits, classes, digits).sum(), logits)
    expected = [closed_form(z, g, **options) for z, g in zip(logits.tolist(), classes.tolist(), strict=True)]
    # torch's softplus is the identity above 20, which is off by up to e^-20 = 2e-9.
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=5e-9)


@pytest.mark.parametrize(
    ("z", "others", "total"),
    [(uniform(), 0.05, 0.4), (ln9(), 0.0441051851, 0.2), (GEN, None, 0.509584750)],
    ids=["uniform", "ln9", "gen"],
)
def test_gradient_off_the_target_and_its_sum_are_the_published_ones(z, others, total):
    _, gradient = one_position("del", {}, z, 3)
    assert gradient.sum().item() == pytest.approx(total, abs=1e-9)
    if others is not None:
        off = torch.cat([gradient[:3], gradient[4:]])
        assert off.tolist() == pytest.approx([others] * 9, abs=1e-9)


def test_detaching_the_weight_leaves_the_value():
    plain, _ = one_position("del", {}, GEN, 3)
    detached, gradient = one_position("del", {"detach_weight": True}, GEN, 3)
    assert detached == pytest.approx(plain, abs=1e-12)
    assert gradient[3] < 0


def test_detached_weight_never_pushes_the_right_digit_down(batch, digits):
    logits, classes, _ = batch
    logits = (logits - 12.0).requires_grad_()
    loss = number_loss("del", {"detach_weight": True}, logits, classes, digits)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert (gradient.gather(1, classes[:, None]) <= 0).all()


@pytest.mark.parametrize(("z_target", "sign"), [(-1.2392, 1.0), (-1.2391, -1.0)])
def test_gradient_turns_wrong_where_the_target_logit_falls_below_the_published_threshold(z_target, sign):
    z = uniform()
    z[3] = z_target
    _, gradient = one_position("del", {}, z, 3)
    assert math.copysign(1.0, gradient[3].item()) == sign


def test_gradient_vanishes_where_the_right_digit_is_improbable():
    z = [15.0] * 10
    z[3] = 0.0
    _, gradient = one_position("del", {}, z, 3)
    assert gradient[3].item() == pytest.approx(-5.0e-7, rel=0.01)
    assert gradient[3].item() == pytest.approx(closed_form(z, 3)[3], rel=1e-9)


def test_level_puts_the_mean_logit_of_each_position_there():
    for c in (-20.0, 0.0, 20.0):
        moved, _ = one_position("del", {"level": 3.0}, [x + c for x in GEN], 3)
        by_hand, _ = one_position("del", {}, [x - 0.17 + 3.0 for x in GEN], 3)
        assert moved == pytest.approx(by_hand, abs=1e-9)


def test_bf16_rounding_of_the_logits_costs_what_was_published():
    """gen + 20 is 16.3625 exactly and 16.419388 once the logits were rounded to bf16 (in float32: 5e-6)."""
    logits = torch.tensor([[x + 20 for x in GEN]], dtype=torch.float64).bfloat16().double()
    value = number_loss("del", {}, logits, torch.tensor([3]), torch.arange(10.0, dtype=torch.float64))
    assert value.item() == pytest.approx(16.419388, abs=5e-6)


def test_sum_over_the_classes_is_not_a_mean():
    """The published code's mean over ten classes would give ln 2 / 10."""
    value, _ = one_position("del", {}, uniform(), 0)
    assert value == pytest.approx(math.log(2), abs=1e-12)


def test_distance_variant_is_zero_weighted_on_the_right_digit():
    """Σ p_j B_j |v_j - v_g|: at uniform logits, target 3, ln 2 · 27 / 10."""
    value, _ = one_position("del_distance", {}, uniform(), 3)
    assert value == pytest.approx(math.log(2) * 2.7, abs=1e-12)
    value, _ = one_position("del_distance", {}, ln9(0), 0)
    assert value == pytest.approx(45 / 18 * math.log(2), abs=1e-12)


def test_margin_variant_has_the_closed_forms():
    """Values: 0.9 ln 2 at uniform logits, ½ ln(10/9) at ln 9; gradient: the docstring's."""
    assert one_position("del_margin", {}, uniform(), 3)[0] == pytest.approx(0.9 * math.log(2), abs=1e-12)
    assert one_position("del_margin", {}, ln9(0), 0)[0] == pytest.approx(0.5 * math.log(10 / 9), abs=1e-12)
    value, gradient = one_position("del_margin", {}, GEN, 3)
    p = twins.softmax(GEN)
    expected = [
        p[j] * (math.log(1 + p[j] / p[3]) - value + twins.sigmoid(GEN[j] - GEN[3])) for j in range(10)
    ]
    others = sum(p[j] * twins.sigmoid(GEN[j] - GEN[3]) for j in range(10) if j != 3)
    expected[3] = -p[3] * value - others
    assert gradient.tolist() == pytest.approx(expected, abs=1e-12)


def test_margin_variant_still_teaches_where_the_model_is_sure_of_a_wrong_digit():
    """DEL's gradient on the right digit vanishes there with its probability."""
    z = [15.0] * 10
    z[3] = -15.0
    assert one_position("del_margin", {}, z, 3)[1][3] == pytest.approx(-1, abs=1e-9)
    assert abs(one_position("del", {}, z, 3)[1][3]) < 1e-9


def test_entropy_has_no_gradient_at_uniform_and_at_certainty():
    for z in (uniform(), [60.0, *[0.0] * 9]):
        _, gradient = one_position("digit_entropy", {}, z, 3)
        assert gradient.abs().max() < 1e-12


def test_entropy_does_not_know_the_target():
    values = [one_position("digit_entropy", {}, GEN, g)[0] for g in range(10)]
    assert max(values) == min(values)
    assert values[0] == pytest.approx(twins.digit_entropy(GEN, 0, DIGITS), abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_focal_gradient_is_the_closed_form(gamma):
    _, gradient = one_position("digit_focal", {"gamma": gamma}, GEN, 3)
    expected = []
    for j, z in enumerate(GEN):
        s = twins.sigmoid(z)
        if j == 3:
            expected.append(-((1 - s) ** gamma) * (gamma * s * twins.softplus(-z) + (1 - s)))
        else:
            expected.append(s**gamma * (gamma * (1 - s) * twins.softplus(z) + s))
    assert gradient.tolist() == pytest.approx(expected, abs=1e-9)


def test_losses_differ_as_their_options_do():
    assert NUMBER_LOSSES["del"](detach_weight=True) != NUMBER_LOSSES["del"]()
    assert NUMBER_LOSSES["del"](level=1.0) != NUMBER_LOSSES["del"](level=2.0)
