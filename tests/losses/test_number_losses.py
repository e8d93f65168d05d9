"""What every number loss has to keep: published vectors, naive twin, gradient, invariances, refusals."""

import dataclasses
import math

import pytest
import torch
import twins
from calls import DIGIT_UNIT, any_number_loss, number_loss, one_position, with_defaults
from vectors import NUMBER_VALUES, TARGET_GRADIENTS

from numsft.losses import NUMBER_LOSSES

OPTIONS = with_defaults(twins.NUMBER_OPTIONS, DIGIT_UNIT)
ALL = sorted(NUMBER_LOSSES)

# They see the absolute level of the logits, through a sigmoid; every other loss sees differences alone.
LEVEL_DEPENDENT = {"del", "del_distance", "digit_focal"}
# The gradient is not that of the value: a factor is held constant, or the digits are sampled.
STOPPED = {"ntil"}
# The published default weights and place weightings, summed over classes.
DEFAULTS = {
    "del": (0.01, "float"),
    "digit_entropy": (0.01, "float"),
    "digit_focal": (0.01, "none"),
    "ntl_was": (0.3, "none"),
    "ntl_mse": (0.3, "none"),
    "dist2": (0.1, "none"),
    "smmd": (0.3, "none"),
    "crps": (0.3, "none"),
    "digit_ce": (0.3, "none"),
    "gaussian_smoothing": (0.3, "none"),
    "del_distance": (0.01, "float"),
    "del_margin": (0.3, "float"),
    "ntl_number": (0.3, "none"),
    "ntil": (0.3, "none"),
}
# The weight is published where the paper or its code states one for this very loss.
PUBLISHED = {"del", "ntl_was", "ntl_mse", "dist2", "ntil"}
OURS = {"digit_entropy", "digit_focal", "smmd", "crps", "digit_ce", "del_distance", "del_margin"}


def test_the_losses_of_the_papers_are_all_there():
    assert set(NUMBER_LOSSES) >= set(DEFAULTS)


# --- values


@pytest.mark.parametrize(
    ("name", "options", "z", "g", "log_mass", "expected", "tolerance"),
    [row for row in NUMBER_VALUES if row[0] in DIGIT_UNIT],
)
def test_loss_gives_the_published_value(name, options, z, g, log_mass, expected, tolerance):
    value, _ = one_position(name, options, z, g, log_mass)
    assert value == pytest.approx(expected, abs=tolerance, rel=0)


@pytest.mark.parametrize(
    ("name", "options", "z", "expected", "tolerance"),
    [row for row in TARGET_GRADIENTS if row[0] in DIGIT_UNIT],
)
def test_gradient_at_the_target_is_the_published_one(name, options, z, expected, tolerance):
    _, gradient = one_position(name, options, z, 3)
    assert gradient[3].item() == pytest.approx(expected, abs=tolerance, rel=0)


@pytest.mark.parametrize(("name", "options"), [row for row in OPTIONS if row[0] in twins.NUMBER_TWINS])
def test_loss_equals_its_naive_twin_on_digits(name, options, batch, digits):
    logits, classes, log_mass = batch
    value = number_loss(name, options, logits, classes, digits, log_mass)
    expected = [
        twins.NUMBER_TWINS[name](z, g, twins.DIGITS, mass, **options)
        for z, g, mass in zip(logits.tolist(), classes.tolist(), log_mass.tolist(), strict=True)
    ]
    assert value.dtype == torch.float64
    assert value.shape == (60,)
    assert value.tolist() == pytest.approx(expected, rel=1e-10, abs=1e-10)


# Without `crps` and `smmd`: their papers define them on evenly spaced values, or squash the distances first.
IRREGULAR = [
    (name, options)
    for name, options in OPTIONS
    if name in twins.NUMBER_TWINS
    and name not in {"crps", "smmd"}
    and "modulus" not in options
    and not NUMBER_LOSSES[name].single_digits_only
]


@pytest.mark.parametrize(("name", "options"), IRREGULAR)
def test_distances_are_those_of_the_token_values_not_of_their_ids(name, options):
    generator = torch.Generator().manual_seed(5)
    values = [7.0, 0.0, 42.0, 3.0, 120.0, 9.0, 100.0]
    logits = torch.randn(21, 7, generator=generator, dtype=torch.float64)
    classes = torch.arange(21) % 7
    log_mass = -torch.rand(21, generator=generator, dtype=torch.float64)
    value = number_loss(
        name, options, logits, classes, torch.tensor(values, dtype=torch.float64), log_mass
    ).tolist()
    expected = [
        twins.NUMBER_TWINS[name](z, g, values, mass, **options)
        for z, g, mass in zip(logits.tolist(), classes.tolist(), log_mass.tolist(), strict=True)
    ]
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "options"), [row for row in OPTIONS if not NUMBER_LOSSES[row[0]].single_digits_only]
)
def test_the_order_of_the_classes_does_not_matter(name, options, batch, digits):
    logits, classes, log_mass = batch
    order = torch.tensor([3, 9, 0, 5, 1, 8, 2, 7, 6, 4])
    permuted = number_loss(name, options, logits[:, order], order.argsort()[classes], digits[order], log_mass)
    torch.testing.assert_close(permuted, number_loss(name, options, logits, classes, digits, log_mass))


@pytest.mark.parametrize("name", DIGIT_UNIT)
def test_each_position_has_its_own_loss(name, batch, digits):
    logits, classes, log_mass = batch
    together = number_loss(name, {}, logits, classes, digits, log_mass)
    rows = [slice(i, i + 1) for i in range(60)]
    alone = [number_loss(name, {}, logits[row], classes[row], digits, log_mass[row]) for row in rows]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)


# --- gradients


@pytest.mark.parametrize(
    ("name", "options"),
    [row for row in OPTIONS if row[0] not in STOPPED and not row[1].get("detach_weight")],
)
def test_gradient_is_that_of_the_value(name, options, batch, digits):
    logits, classes, log_mass = (tensor[5:45:4].clone() for tensor in batch)
    logits.requires_grad_()
    log_mass.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z, mass: number_loss(name, options, z, classes, digits, mass), (logits, log_mass), atol=1e-6
    )


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_log_mass_carries_gradient_exactly_where_it_is_asked_for(name, options, batch, digits):
    logits, classes, log_mass = batch
    loss = NUMBER_LOSSES[name](**options)
    asked = bool(options.get("reweigh") or options.get("full_vocab") or name == "gaussian_smoothing")
    if name in twins.NUMBER_TWINS:
        assert loss.needs_log_mass is asked
    if loss.needs_log_mass:
        mass = log_mass.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(logits, classes, digits, log_mass=mass).sum(), mass)
        assert gradient.abs().min() > 0


# --- invariances


@pytest.mark.parametrize(("name", "options"), OPTIONS + [(n, {}) for n in ALL if n not in DIGIT_UNIT])
@pytest.mark.parametrize("shift", [-20.0, 7.0])
def test_shift_invariance_holds_exactly_where_it_is_claimed(name, options, shift, batch, digits):
    logits, classes, _ = batch
    before = any_number_loss(name, options, logits, classes, digits)
    after = any_number_loss(name, options, logits + shift, classes, digits)
    if name in LEVEL_DEPENDENT and options.get("level") is None:
        assert (before - after).abs().median() > 1e-2
    else:
        torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in ALL if name not in LEVEL_DEPENDENT])
def test_gradient_of_a_shift_invariant_loss_sums_to_zero(name, batch, digits):
    logits, classes, _ = batch
    logits = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(any_number_loss(name, {}, logits, classes, digits).sum(), logits)
    assert gradient.abs().max() > 1e-4
    assert gradient.sum(-1).abs().max() < 1e-9


# --- minima


def _logits_at_the_minimum(name, g):
    """Where the loss is smallest: certainty of the right digit, or the soft target of a smoothing loss."""
    if name == "dist2":
        return [math.log(q) for q in twins.dist2_target(g, twins.DIGITS)]
    if name == "gaussian_smoothing":
        return [math.log(q) for q in twins.gaussian_target(g, twins.DIGITS)]
    return [40.0 if digit == g else -40.0 for digit in range(10)]


@pytest.mark.parametrize("name", DIGIT_UNIT)
@pytest.mark.parametrize("g", range(10))
def test_nothing_is_below_the_stated_minimum(name, g, batch, digits):
    least, gradient = one_position(name, {}, _logits_at_the_minimum(name, g), g)
    target = twins.gaussian_target(g, twins.DIGITS)
    entropy = -sum(q * math.log(q) for q in target)
    assert least == pytest.approx(entropy if name == "gaussian_smoothing" else 0.0, abs=1e-9)
    assert gradient.abs().max() < 1e-9
    logits, _, _ = batch
    others = number_loss(name, {}, logits, torch.full((60,), g), digits)
    assert (others > least).all()


# --- dtypes and extremes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_result_has_the_dtype_of_the_logits(name, dtype, batch, digits):
    logits, classes, _ = batch
    assert any_number_loss(name, {}, logits.to(dtype), classes, digits.to(dtype)).dtype == dtype


def test_a_list_of_bandwidths_as_yaml_gives_it_is_a_set_of_bandwidths(batch, digits):
    logits, classes, _ = batch
    from_yaml = number_loss("smmd", {"sigma": [1.0, 2.0, 4.0]}, logits, classes, digits)
    torch.testing.assert_close(
        from_yaml, number_loss("smmd", {"sigma": (1.0, 2.0, 4.0)}, logits, classes, digits)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_values_of_another_dtype_change_neither_the_result_nor_its_dtype(name, dtype, batch, digits):
    """The vocabulary keeps its values in one dtype; the logits come in any."""
    logits, classes, _ = batch
    logits = logits.to(dtype)
    expected = any_number_loss(name, {}, logits, classes, digits.to(dtype))
    for other in (torch.float64, torch.float32):
        value = any_number_loss(name, {}, logits, classes, digits.to(other))
        assert value.dtype == dtype
        if name != "ntil":
            torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_bf16_logits_lose_at_most_five_percent(name, options, batch, digits):
    """Against float64 on the same rounded logits: 5 % of the value and 2 % of the batch's largest."""
    logits, classes, log_mass = batch
    rounded, mass = logits.bfloat16(), log_mass.bfloat16()
    exact = number_loss(name, options, rounded.double(), classes, digits, mass.double())
    value = number_loss(name, options, rounded, classes, digits.bfloat16(), mass).double()
    assert ((value - exact).abs() <= 0.05 * exact.abs() + 0.02 * exact.abs().max()).all()


def _extremes():
    rows = [[100.0] * 10, [-100.0] * 10, [100.0 if j % 2 else -100.0 for j in range(10)]]
    rows += [[100.0 if j == k else -100.0 for j in range(10)] for k in range(10)]
    rows += [[-100.0 if j == k else 100.0 for j in range(10)] for k in range(10)]
    return rows


@pytest.mark.parametrize(("name", "options"), OPTIONS + [(n, {}) for n in ALL if n not in DIGIT_UNIT])
@pytest.mark.parametrize("log_mass", [0.0, -200.0])
def test_logits_of_a_hundred_give_finite_values_and_gradients_in_float32(name, options, log_mass, digits):
    rows = _extremes()
    logits = torch.tensor([row for row in rows for _ in range(10)], requires_grad=True)
    classes = torch.arange(10).repeat(len(rows))
    if NUMBER_LOSSES[name].unit == "digit":
        mass = torch.full((len(classes),), log_mass)
        value = number_loss(name, options, logits, classes, digits.float(), mass)
    else:
        value = any_number_loss(name, options, logits, classes, digits.float())
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_empty_batch_gives_an_empty_loss_attached_to_the_graph(name, digits):
    logits = torch.zeros(0, 10, dtype=torch.float64, requires_grad=True)
    value = any_number_loss(name, {}, logits, torch.zeros(0, dtype=torch.long), digits)
    assert value.shape == (0,)
    assert value.requires_grad
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert gradient.shape == (0, 10)


@pytest.mark.parametrize("name", ALL)
def test_the_inputs_are_left_as_they_were(name, batch, digits):
    logits, classes, _ = batch
    copies = logits.clone(), classes.clone(), digits.clone()
    any_number_loss(name, {}, logits, classes, digits)
    assert all(torch.equal(now, then) for now, then in zip((logits, classes, digits), copies, strict=True))


# --- description


@pytest.mark.parametrize("name", ALL)
def test_loss_describes_itself(name):
    loss = NUMBER_LOSSES[name]
    assert loss.name == name
    assert loss.unit in {"digit", "number"}
    for text in (loss.formula, loss.minimum, loss.overhead, loss.source, loss.__doc__):
        assert text.strip()
    assert loss.default_weight > 0
    assert loss.weight_source in {"published", "ours"}
    assert loss.default_place_weighting in {"none", "integer", "float"}
    assert dataclasses.is_dataclass(loss)
    assert loss.__dataclass_params__.frozen
    assert loss() == loss()


@pytest.mark.parametrize("name", [name for name in ALL if name in DEFAULTS])
def test_default_weight_and_places_are_the_specified_ones(name):
    loss = NUMBER_LOSSES[name]
    assert (loss.default_weight, loss.default_place_weighting) == DEFAULTS[name]
    if name in PUBLISHED | OURS:
        assert loss.weight_source == ("published" if name in PUBLISHED else "ours")


def test_default_options_are_the_published_ones():
    expected = {
        "del": {"detach_weight": False, "level": None},
        "digit_focal": {"gamma": 2},
        "ntl_was": {"reweigh": False, "squash": None, "power": 1, "modulus": None},
        "ntl_mse": {"reweigh": False, "loss": "mse"},
        "dist2": {"tau": 1, "full_vocab": False},
        "smmd": {"kernel": "gaussian", "sigma": 2, "smoothness": "auto"},
        "gaussian_smoothing": {"sigma": 1},
        "ntil": {"self_scale": False},
    }
    for name, options in expected.items():
        found = {field.name: field.default for field in dataclasses.fields(NUMBER_LOSSES[name])}
        assert {key: found[key] for key in options} == options, name


# --- refused options

REFUSED = [
    ("digit_focal", {"gamma": -0.5}),
    ("digit_focal", {"gamma": math.nan}),
    ("ntl_was", {"squash": 1.0}),
    ("ntl_was", {"squash": 0.5}),
    ("ntl_was", {"power": -1.0}),
    ("ntl_was", {"power": math.nan}),
    ("ntl_was", {"modulus": 0.0}),
    ("ntl_was", {"modulus": -12.0}),
    ("ntl_mse", {"loss": "rmse"}),
    ("dist2", {"tau": 0.0}),
    ("dist2", {"tau": -1.0}),
    ("dist2", {"tau": math.nan}),
    ("smmd", {"kernel": "cosine"}),
    ("smmd", {"sigma": 0.0}),
    ("smmd", {"sigma": -2.0}),
    ("smmd", {"sigma": ()}),
    ("smmd", {"sigma": (1.0, 0.0)}),
    ("smmd", {"smoothness": -0.1}),
    ("smmd", {"smoothness": "automatic"}),
    ("gaussian_smoothing", {"sigma": -1.0}),
    ("gaussian_smoothing", {"sigma": math.nan}),
]


@pytest.mark.parametrize(("name", "options"), [row for row in REFUSED if row[0] in ALL])
def test_option_out_of_range_is_refused_in_one_line_when_the_loss_is_made(name, options):
    with pytest.raises(ValueError) as caught:
        NUMBER_LOSSES[name](**options)
    message = str(caught.value)
    assert message.strip()
    assert "\n" not in message
    assert next(iter(options)) in message
