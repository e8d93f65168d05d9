"""Token losses: published vectors, naive twins, and the gradient with the stopped factors held constant."""

import dataclasses
import math

import pytest
import torch
import twins
from calls import TOKEN, with_defaults
from vectors import TOKEN_VALUES

from numsft.losses import TOKEN_LOSSES

OPTIONS = with_defaults(twins.TOKEN_OPTIONS, TOKEN)
# Four tokens; the third one's logit is ln 2 and it is the label: q = [.2, .4, .2, .2].
Z = [0.0, math.log(2), 0.0, 0.0]
EMBEDDINGS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, -1.0]]


def call(name, options, ce, emo):
    loss = TOKEN_LOSSES[name](**options)
    return loss(ce, emo) if loss.needs_cost_embedding else loss(ce)


def random_tokens(size=40):
    generator = torch.Generator().manual_seed(11)
    ce = 6.0 * torch.rand(size, generator=generator, dtype=torch.float64) + 1e-3
    emo = 1.5 * torch.rand(size, generator=generator, dtype=torch.float64) + 0.1
    return ce, emo


def emo_of(z, label, *, adaptive=True):
    """1 - Σ q̃_v c_v with q̃ = q - sg(q_g) e_g, or q̃ = q."""
    cost = torch.nn.functional.normalize(torch.tensor(EMBEDDINGS, dtype=torch.float64), dim=-1)
    cost = cost @ cost[label]
    q = torch.softmax(z, 0)
    kept = q[label].detach() if adaptive else 0.0
    return 1.0 - (q * cost).sum() + kept * cost[label]


def test_the_token_losses_of_the_papers_are_all_there():
    assert set(TOKEN_LOSSES) >= {"ce", "mixce", "emo", "tailr", "dft"}


@pytest.mark.parametrize(("name", "options", "ce", "emo", "expected"), TOKEN_VALUES)
def test_loss_gives_the_published_value(name, options, ce, emo, expected):
    ce = torch.tensor([ce], dtype=torch.float64)
    emo = torch.tensor([emo], dtype=torch.float64) if emo is not None else None
    assert call(name, options, ce, emo).item() == pytest.approx(expected, abs=1e-9, rel=0)


@pytest.mark.parametrize(("name", "options"), [row for row in OPTIONS if row[0] in twins.TOKEN_TWINS])
def test_loss_equals_its_naive_twin(name, options):
    ce, emo = random_tokens()
    value = call(name, options, ce, emo)
    pairs = zip(ce.tolist(), emo.tolist(), strict=True)
    expected = [twins.TOKEN_TWINS[name](c, e, **options) for c, e in pairs]
    assert value.dtype == torch.float64
    assert value.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("name", "options"), [row for row in OPTIONS if row[0] in twins.TOKEN_TWINS])
def test_gradient_holds_the_stopped_factor_constant(name, options):
    ce, emo = (tensor.requires_grad_() for tensor in random_tokens())
    value = call(name, options, ce, emo).sum()
    found_ce, found_emo = torch.autograd.grad(value, (ce, emo), allow_unused=True, materialize_grads=True)
    for c, e, slope_ce, slope_emo in zip(
        ce.tolist(), emo.tolist(), found_ce.tolist(), found_emo.tolist(), strict=True
    ):
        expected = twins.token_slopes(name, c, e, **options)
        assert (slope_ce, slope_emo) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_mixce_gradient_over_the_vocabulary_is_the_published_one():
    z = torch.tensor(Z, dtype=torch.float64, requires_grad=True)
    ce = -torch.log_softmax(z, 0)[1:2]
    (gradient,) = torch.autograd.grad(TOKEN_LOSSES["mixce"](eta=0.5)(ce).sum(), z)
    assert gradient.tolist() == pytest.approx([0.14, -0.42, 0.14, 0.14], abs=1e-9)


@pytest.mark.parametrize("adaptive", [True, False])
def test_emo_term_and_its_gradient_are_the_published_ones(adaptive):
    z = torch.tensor(Z, dtype=torch.float64, requires_grad=True)
    emo = emo_of(z, 1, adaptive=adaptive)
    (gradient,) = torch.autograd.grad(emo, z)
    value = 1.0585786437626905 if adaptive else 0.6585786437626904
    assert emo.item() == pytest.approx(value, abs=1e-12)
    assert gradient.tolist() == pytest.approx(
        [0.0682842712, -0.2634314575, -0.0731370850, 0.2682842712], abs=1e-9
    )


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        (1, 0.9162907318, [0.1295529507, -0.4140112756, 0.0683467858, 0.2161115391]),
        (2, 2.1171572874, [0.2993416440, -0.9566035743, 0.1579202873, 0.4993416440]),
    ],
)
def test_emo_gradient_over_the_vocabulary_is_the_published_one(mode, value, expected):
    z = torch.tensor(Z, dtype=torch.float64, requires_grad=True)
    ce = -torch.log_softmax(z, 0)[1:2]
    loss = TOKEN_LOSSES["emo"](mode=mode)(ce, emo_of(z, 1)[None])
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert loss.item() == pytest.approx(value, abs=1e-9)
    assert gradient.tolist() == pytest.approx(expected, abs=1e-9)


def test_emo_value_is_the_cross_entropy_in_mode_1_and_twice_the_term_in_mode_2():
    ce, emo = random_tokens()
    torch.testing.assert_close(TOKEN_LOSSES["emo"]()(ce, emo), ce, rtol=1e-8, atol=0)
    torch.testing.assert_close(TOKEN_LOSSES["emo"](mode=2)(ce, emo), 2 * emo, rtol=1e-6, atol=0)


def test_mixce_runs_from_cross_entropy_to_dft():
    ce, _ = random_tokens()
    torch.testing.assert_close(TOKEN_LOSSES["mixce"](eta=1.0)(ce), ce)
    torch.testing.assert_close(TOKEN_LOSSES["mixce"](eta=0.0)(ce), TOKEN_LOSSES["dft"]()(ce))


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_certainty_of_the_right_token_costs_nothing(name, options):
    """Cross-entropy 0, and in EMO's terms no distance either."""
    zero = torch.zeros(1, dtype=torch.float64)
    assert call(name, options, zero, zero).abs().item() < 1e-9


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_loss_is_never_negative_and_an_improbable_token_has_a_finite_one(name, options):
    ce = torch.tensor([0.0, 1e-6, 1.0, 20.0, 100.0, 200.0], requires_grad=True)
    emo = torch.tensor([1.0, 1.0, 0.5, 1.0, 1.9, 1.0], requires_grad=True)
    value = call(name, options, ce, emo)
    gradients = torch.autograd.grad(value.sum(), (ce, emo), allow_unused=True, materialize_grads=True)
    assert (value >= 0).all()
    assert value.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_result_keeps_the_dtype_and_bf16_loses_at_most_three_percent(name, options, dtype):
    ce, emo = (tensor.to(dtype) for tensor in random_tokens())
    value = call(name, options, ce, emo)
    exact = call(name, options, ce.double(), emo.double())
    assert value.dtype == dtype
    assert value.shape == ce.shape
    torch.testing.assert_close(value.double(), exact, rtol=0.03, atol=1e-3)


@pytest.mark.parametrize("name", TOKEN)
def test_empty_batch_gives_an_empty_loss_attached_to_the_graph(name):
    ce = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    value = call(name, {}, ce, torch.zeros(0, dtype=torch.float64))
    assert value.shape == (0,)
    (gradient,) = torch.autograd.grad(value.sum(), ce)
    assert gradient.shape == (0,)


@pytest.mark.parametrize("name", TOKEN)
def test_loss_describes_itself(name):
    loss = TOKEN_LOSSES[name]
    assert loss.name == name
    assert loss.needs_cost_embedding is (name == "emo") or name not in twins.TOKEN_TWINS
    for text in (loss.formula, loss.minimum, loss.overhead, loss.source, loss.__doc__):
        assert text.strip()
    assert dataclasses.is_dataclass(loss)
    assert loss.__dataclass_params__.frozen


def test_default_options_are_the_specified_ones():
    for name, options in {"mixce": {"eta": 0.5}, "emo": {"mode": 1}, "tailr": {"gamma": 0.5}}.items():
        found = {field.name: field.default for field in dataclasses.fields(TOKEN_LOSSES[name])}
        assert {key: found[key] for key in options} == options


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixce", {"eta": -0.1}),
        ("mixce", {"eta": 1.1}),
        ("mixce", {"eta": math.nan}),
        ("emo", {"mode": 0}),
        ("emo", {"mode": 3}),
        ("tailr", {"gamma": -0.1}),
        ("tailr", {"gamma": 1.1}),
        ("tailr", {"gamma": math.nan}),
    ],
)
def test_option_out_of_range_is_refused_in_one_line_when_the_loss_is_made(name, options):
    with pytest.raises(ValueError) as caught:
        TOKEN_LOSSES[name](**options)
    message = str(caught.value)
    assert "\n" not in message
    assert next(iter(options)) in message
