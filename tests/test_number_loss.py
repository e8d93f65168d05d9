"""`number_loss` on full logits: published end-to-end values, the shift, the reductions, the attached zero."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from numsft import number_loss
from numsft.losses import NUMBER_LOSSES
from numsft.numerals import NumberVocab

# Fourteen tokens: ten digits, a point, a letter, a comma, a space. Digit d has id 13 - d.
DIGIT_ID = [13 - digit for digit in range(10)]
TEXT_ID = {**{str(d): DIGIT_ID[d] for d in range(10)}, ".": 0, "a": 1, ",": 2, " ": 3}
ALL = sorted(NUMBER_LOSSES)


def digit_vocab():
    return NumberVocab(
        token_ids=torch.tensor(DIGIT_ID),
        values=torch.arange(10, dtype=torch.float64),
        lengths=torch.ones(10, dtype=torch.long),
        decimal_point_ids=torch.tensor([0]),
        kind="digit",
    )


def labels_of(*texts):
    """Rows of labels; `#` is an ignored one."""
    return torch.tensor([[TEXT_ID.get(character, -100) for character in text] for text in texts])


def logits_for(labels, kind):
    """Uniform logits, or ln 9 on each digit that is to be predicted; the last position predicts nothing."""
    logits = torch.zeros(*labels.shape, 14, dtype=torch.float64)
    if kind == "ln9":
        for b, t in torch.nonzero(labels > 3).tolist():
            if t > 0:
                logits[b, t - 1, labels[b, t]] = math.log(9)
    return logits.requires_grad_()


def random_batch(*texts, seed=0):
    labels = labels_of(*texts)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*labels.shape, 14, generator=generator, dtype=torch.float64), labels


def per_digit(loss, logits, labels, b, t):
    """The loss of label t of row b, which the logits at t - 1 predict."""
    row = logits[b, t - 1]
    columns = row[DIGIT_ID]
    mass = (columns.logsumexp(0) - row.logsumexp(0))[None]
    digit = torch.tensor([13 - int(labels[b, t])])
    values = torch.arange(10, dtype=torch.float64)
    if loss.needs_log_mass:
        return loss(columns[None], digit, values, log_mass=mass)
    return loss(columns[None], digit, values)


# --- the published values

PUBLISHED = [
    # text, logits, value of the published code over α (class mean, digit mean), tolerance: the code's weights
    # are float32 results of a pow and a log, so 4 is 3.9999862
    ("7", "uni", 0.13862943649291992, 1e-8),
    ("7", "ln9", 0.07985076978802681, 1e-8),
    ("42", "uni", 0.20794408863571337, 2e-7),
    ("42", "ln9", 0.11977611660622604, 2e-7),
    ("12.34", "uni", 0.1369570646, 1e-7),
    ("12.34", "ln9", 0.0788874810367891, 1e-7),
    ("a7 42.", "ln9", 0.10646734878188284, 5e-7),
    ("1,234", "uni", 0.24260111517487104, 5e-7),
]


@pytest.mark.parametrize(("text", "kind", "expected", "tolerance"), PUBLISHED)
def test_reference_reduction_gives_what_the_published_code_gives(text, kind, expected, tolerance):
    """The letter before the text is there because a row's first token is never predicted."""
    labels = labels_of("a" + text)
    value = number_loss(logits_for(labels, kind), labels, digit_vocab(), "del", number_reduction="reference")
    assert value.item() == pytest.approx(expected, abs=tolerance, rel=0)


def test_decimal_offset_zero_gives_the_value_of_the_papers_own_places():
    labels = labels_of("a12.34")
    value = number_loss(
        logits_for(labels, "ln9"),
        labels,
        digit_vocab(),
        "del",
        place_weighting="float",
        place_weighting_kwargs={"decimal_offset": 0},
        number_reduction="reference",
    )
    assert value.item() == pytest.approx(0.07926746911319824, abs=1e-7)


def test_total_of_cross_entropy_and_digit_entropy_loss_is_the_published_one():
    labels = labels_of("a12.34")
    logits = logits_for(labels, "ln9")
    ce = F.cross_entropy(logits[0, :-1], labels[0, 1:])
    auxiliary = number_loss(logits, labels, digit_vocab(), "del", number_reduction="reference")
    assert ce.item() == pytest.approx(1.2428657667, abs=1e-9)
    assert (ce + 0.1 * auxiliary).item() == pytest.approx(1.2507545148, abs=1e-8)


def test_reductions_divide_the_same_sum():
    """ "12.34" at ln9 logits: Σ w R = 3.1555 over 4 digits, weights of 7.9035, 5 tokens."""
    labels = labels_of("a12.34")
    logits = logits_for(labels, "ln9")
    total = 3.155499241471564
    for reduction, divisor in {
        "digits": 4.0,
        "weights": 7.903491115785029,
        "tokens": 5.0,
        "reference": 40.0,
    }.items():
        value = number_loss(logits, labels, digit_vocab(), "del", number_reduction=reduction)
        assert value.item() == pytest.approx(total / divisor, rel=1e-7), reduction
    default = number_loss(logits, labels, digit_vocab(), "del")
    assert default.item() == pytest.approx(total / 4, rel=1e-7)


def test_dist2_weighted_by_integer_places_gives_the_published_weighted_mean():
    labels = labels_of("a123")
    options = {"place_weighting": "integer", "number_reduction": "weights"}
    value = number_loss(logits_for(labels, "uni"), labels, digit_vocab(), "dist2", **options)
    assert value.item() == pytest.approx(1.2551635568, abs=1e-7)


def test_reweighing_sees_the_mass_outside_the_digits():
    labels = labels_of("a3")
    loss = NUMBER_LOSSES["ntl_was"](reweigh=True)
    for kind, expected in {"uni": 4.525714285714286, "ln9": 2.88}.items():
        value = number_loss(logits_for(labels, kind), labels, digit_vocab(), loss)
        assert value.item() == pytest.approx(expected, abs=1e-9)


def test_relative_error_of_a_number_is_the_published_one():
    labels = labels_of("a42")
    value = number_loss(logits_for(labels, "ln9"), labels, digit_vocab(), "ntl_number")
    assert value.item() == pytest.approx(0.0472589791, abs=1e-9)


# --- what counts


def test_labels_are_shifted_inside():
    """The logits at t predict the label at t + 1, as Hugging Face models have it."""
    logits, labels = random_batch("a4 2.", "7a 10")
    loss = NUMBER_LOSSES["ntl_was"]()
    at = [(0, 1), (0, 3), (1, 3), (1, 4)]
    expected = torch.cat([per_digit(loss, logits, labels, b, t) for b, t in at]).mean()
    value = number_loss(logits, labels, digit_vocab(), "ntl_was")
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_the_logits_of_the_last_position_get_no_gradient_and_others_only_before_digits():
    logits, labels = random_batch("a4 2.7")
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(number_loss(logits, labels, digit_vocab(), "ntl_was"), logits)
    assert (gradient[0].abs().sum(-1) > 0).tolist() == [True, False, True, False, True, False]
    assert gradient[..., :4].abs().max() == 0


def test_the_first_token_of_a_row_neither_counts_nor_lengthens_a_number():
    """Of "42." the 2 alone is predicted, as a units digit: its weight is 2."""
    labels = labels_of("42.", "a2.")
    logits = logits_for(labels, "uni")
    value = number_loss(logits[:1], labels[:1], digit_vocab(), "del")
    assert value.item() == pytest.approx(2 * math.log(2), rel=1e-7)
    tokens = number_loss(logits, labels, digit_vocab(), "del", number_reduction="tokens")
    assert tokens.item() == pytest.approx(2 * 2 * math.log(2) / 4, rel=1e-7)


def test_the_first_token_of_a_packed_document_neither_counts_nor_lengthens_a_number():
    labels = labels_of("a4234a")
    positions = torch.tensor([[0, 1, 2, 0, 1, 2]])
    value = number_loss(
        logits_for(labels, "uni"),
        labels,
        digit_vocab(),
        "del",
        position_ids=positions,
        number_reduction="tokens",
    )
    # a|42 and 3|4a: digits 4, 2 of weight 4, 2 and digit 4 of weight 2, over the tokens 4, 2, 4, a.
    assert value.item() == pytest.approx((4 + 2 + 2) * math.log(2) / 4, rel=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_packing_changes_nothing(name):
    """Two rows, or the same two as documents of one row; digits so clear that NTIL draws no others."""
    logits, labels = random_batch("a12.34 7 ", "900 a1.5 ", seed=4)
    clear = torch.arange(18).reshape(2, 9).remainder(7)
    logits = 0.1 * logits
    logits[..., DIGIT_ID] += 4.0 * F.one_hot(clear, 10)
    positions = torch.arange(9).repeat(2)[None]
    rows = number_loss(logits, labels, digit_vocab(), name)
    one_row = logits.reshape(1, 18, 14), labels.reshape(1, 18)
    packed = number_loss(*one_row, digit_vocab(), name, position_ids=positions)
    torch.testing.assert_close(packed, rows, rtol=1e-9, atol=1e-12)


def test_ignored_labels_neither_count_nor_join_digits():
    labels = labels_of("a1#2")
    value = number_loss(logits_for(labels, "uni"), labels, digit_vocab(), "del", number_reduction="tokens")
    assert value.item() == pytest.approx(2 * 2 * math.log(2) / 2, rel=1e-7)


# rows of text, position ids or None, and for each number the row and the (index, place) of its digits
NUMBERS = [
    (["a12.3 4"], None, [(0, [(1, 1), (2, 0), (4, -1)]), (0, [(6, 0)])]),
    (["7 56,789"], None, [(0, [(2, 1), (3, 0)]), (0, [(5, 2), (6, 1), (7, 0)])]),
    (["a12", "345"], None, [(0, [(1, 1), (2, 0)]), (1, [(1, 1), (2, 0)])]),
    (["a1.2.3"], None, [(0, [(1, 0), (3, -1)]), (0, [(5, 0)])]),
    (["a1.2.34.5"], None, [(0, [(1, 0), (3, -1)]), (0, [(5, 1), (6, 0), (8, -1)])]),
    (["a1#2#.3"], None, [(0, [(1, 0)]), (0, [(3, 0)]), (0, [(6, 0)])]),
    (["a.5.2"], None, [(0, [(2, 0), (4, -1)])]),
    (["a12 34"], [[0, 1, 2, 0, 1, 2]], [(0, [(1, 1), (2, 0)]), (0, [(4, 1), (5, 0)])]),
    (["a12734"], [[0, 1, 2, 0, 1, 2]], [(0, [(1, 1), (2, 0)]), (0, [(4, 1), (5, 0)])]),
]


@pytest.mark.parametrize(("texts", "positions", "numbers"), NUMBERS, ids=[row[0][0] for row in NUMBERS])
def test_number_level_losses_are_a_mean_over_whole_numbers(texts, positions, numbers):
    logits, labels = random_batch(*texts)
    values = torch.arange(10, dtype=torch.float64)
    terms = []
    for b, digits in numbers:
        terms.append(
            NUMBER_LOSSES["ntl_number"]()(
                logits[b, [t - 1 for t, _ in digits]][:, DIGIT_ID],
                torch.tensor([13 - int(labels[b, t]) for t, _ in digits]),
                values,
                places=torch.tensor([place for _, place in digits]),
                numbers=torch.zeros(len(digits), dtype=torch.long),
            )
        )
    position_ids = None if positions is None else torch.tensor(positions)
    value = number_loss(logits, labels, digit_vocab(), "ntl_number", position_ids=position_ids)
    torch.testing.assert_close(value, torch.cat(terms).mean(), rtol=1e-9, atol=1e-12)


def test_what_it_is_given_is_left_as_it_was():
    """The first tokens are marked as ignored on a copy."""
    logits, labels = random_batch("42 a7", "7.5 3")
    positions = torch.tensor([[0, 1, 2, 0, 1]] * 2)
    copies = logits.clone(), labels.clone(), positions.clone()
    number_loss(logits, labels, digit_vocab(), "del", position_ids=positions)
    given = (logits, labels, positions)
    assert all(torch.equal(now, then) for now, then in zip(given, copies, strict=True))


# --- choices


@pytest.mark.parametrize("name", ALL)
def test_a_name_means_the_loss_with_its_default_options_and_places(name):
    logits, labels = random_batch("a12.34 a7", "1,234 a5.")
    by_name = number_loss(logits, labels, digit_vocab(), name)
    places = NUMBER_LOSSES[name].default_place_weighting
    by_hand = number_loss(logits, labels, digit_vocab(), NUMBER_LOSSES[name](), place_weighting=places)
    assert by_name.shape == ()
    assert by_name.dtype == torch.float64
    torch.testing.assert_close(by_name, by_hand)


@pytest.mark.parametrize("name", [name for name in ALL if NUMBER_LOSSES[name].unit == "digit"])
@pytest.mark.parametrize(
    ("weighting", "weights"),
    [
        ("none", [1, 1, 1, 1, 1]),
        ("integer", [2, 1, 2, 1, 1]),
        ("float", [4, 2, 1.02**-2, 1.02**-3, 2]),
    ],
)
def test_any_loss_takes_any_place_weighting(name, weighting, weights):
    logits, labels = random_batch("a12.34 7")
    loss = NUMBER_LOSSES[name]()
    terms = torch.cat([per_digit(loss, logits, labels, 0, t) for t in (1, 2, 4, 5, 7)])
    expected = (torch.tensor(weights, dtype=torch.float64) * terms).sum()
    for reduction, divisor in {"digits": 5, "weights": sum(weights), "tokens": 7, "reference": 50}.items():
        value = number_loss(
            logits, labels, digit_vocab(), loss, place_weighting=weighting, number_reduction=reduction
        )
        torch.testing.assert_close(value, expected / divisor, rtol=1e-6, atol=1e-9)


def test_unknown_choices_are_refused_in_one_line_that_names_the_nearest():
    logits, labels = random_batch("a12")
    for wrong in ({"loss": "dell"}, {"number_reduction": "digit"}, {"place_weighting": "floats"}):
        with pytest.raises(ValueError) as caught:
            number_loss(logits, labels, digit_vocab(), **{"loss": "del", **wrong})
        message = str(caught.value)
        assert "\n" not in message
        assert next(iter(wrong.values()))[:3] in message


# --- nothing to learn from


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", ["a a,.", "7a", "#####", "7####"])
@pytest.mark.parametrize("reduction", ["digits", "weights", "tokens", "reference"])
def test_a_batch_without_digits_gives_a_zero_attached_to_the_graph(name, text, reduction):
    labels = labels_of(text)
    logits = torch.zeros(*labels.shape, 14, dtype=torch.float64, requires_grad=True)
    value = number_loss(logits, labels, digit_vocab(), name, number_reduction=reduction)
    assert value.item() == 0.0
    assert value.shape == ()
    (gradient,) = torch.autograd.grad(value, logits)
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("name", ALL)
def test_a_digit_that_no_logit_predicts_is_no_digit(name):
    """A row of one token, and a batch of none."""
    for labels in (labels_of("7"), torch.zeros(0, 4, dtype=torch.long)):
        logits = torch.zeros(*labels.shape, 14, dtype=torch.float64, requires_grad=True)
        value = number_loss(logits, labels, digit_vocab(), name)
        assert value.item() == 0.0
        (gradient,) = torch.autograd.grad(value, logits)
        assert gradient.shape == logits.shape


# --- tokens of several digits


def integer_vocab():
    """Tokens 0..11 stand for 7, 42, 001, 123, 0, 5, 9, 99, 10, 3, 8, 64; 12 is the point, 13 a letter."""
    texts = ["7", "42", "001", "123", "0", "5", "9", "99", "10", "3", "8", "64"]
    return NumberVocab(
        token_ids=torch.arange(12),
        values=torch.tensor([float(text) for text in texts], dtype=torch.float64),
        lengths=torch.tensor([len(text) for text in texts]),
        decimal_point_ids=torch.tensor([12]),
        kind="integer",
    )


@pytest.mark.parametrize("name", ALL)
def test_a_loss_of_single_digits_refuses_longer_tokens_and_every_other_takes_them(name):
    generator = torch.Generator().manual_seed(2)
    labels = torch.tensor([[13, 3, 1, 12, 2, 13, 0]])
    logits = torch.randn(1, 7, 14, generator=generator, dtype=torch.float64, requires_grad=True)
    if NUMBER_LOSSES[name].single_digits_only:
        with pytest.raises(ValueError) as caught:
            number_loss(logits, labels, integer_vocab(), name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
        return
    value = number_loss(logits, labels, integer_vocab(), name)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() > 0
    assert gradient.isfinite().all()
    assert gradient[0, [0, 1, 3, 5]].abs().sum() > 0
    assert gradient[0, [2, 4, 6]].abs().max() == 0


def test_places_and_distances_of_longer_tokens_are_those_of_their_values():
    """123|42 . 001: places 2, 0 and -3, so float weights 6, 2 and β^-4; distances between values."""
    labels = torch.tensor([[13, 3, 1, 12, 2]])
    logits = torch.zeros(1, 5, 14, dtype=torch.float64)
    vocab = integer_vocab()
    value = number_loss(logits, labels, vocab, "ntl_was", place_weighting="float", number_reduction="weights")
    weights = [6.0, 2.0, 1.02**-4]
    costs = [(vocab.values - right).abs().mean().item() for right in (123.0, 42.0, 1.0)]
    expected = sum(w * c for w, c in zip(weights, costs, strict=True)) / sum(weights)
    assert value.item() == pytest.approx(expected, rel=1e-7)


def test_nothing_warns_in_float32():
    logits, labels = random_batch("a12.34 a7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ALL:
            value = number_loss(logits.float(), labels, digit_vocab(), name)
            exact = number_loss(logits, labels, digit_vocab(), name)
            if name != "ntil":
                torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-5)
