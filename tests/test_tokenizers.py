"""The number vocabulary and number targets on real tokenizers, and on every odd way to write a digit.

The reading that they are held against looks at the text alone: a regular expression finds the numbers, and
what each token stands for is what decoding one token more adds to the text.
"""

import copy
import logging
import random
import re
import time

import pytest
import torch
from datasets import Dataset
from helpers import assert_gradients_equal, tiny_trainer, train_recorded
from real_tokenizers import REAL, real_tokenizer
from tiny import CHAT_TEMPLATE, tiny_llama, tiny_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from numsft import NumberVocab, number_loss, number_targets
from numsft.losses import NUMBER_LOSSES

DIGITS = "0123456789"
VALUE_LOSSES = [name for name, loss in NUMBER_LOSSES.items() if not loss.single_digits_only]
DIGIT_LOSSES = [name for name, loss in NUMBER_LOSSES.items() if loss.single_digits_only]

# --- the slow reading

# A point belongs to a number when digits stand on both sides, and only the first one: `1.2.3` is 1.2 and 3.
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def places_in(text):
    """{index of a digit: (its place, digits to its right in the run, which number)}, from the text alone."""
    found = {}
    for n, number in enumerate(NUMBER.finditer(text)):
        whole, _, fraction = number[0].partition(".")
        at = number.start()
        for i in range(len(whole)):
            found[at + i] = (len(whole) - 1 - i, len(whole) - 1 - i, n)
        at += len(whole) + 1
        for i in range(len(fraction)):
            found[at + i] = (-1 - i, len(fraction) - 1 - i, n)
    return found


def pieces_of(tokenizer, ids, text):
    """(start, end) of each token in `text`; None for one that ends inside a character."""

    def decode(prefix):
        return tokenizer.decode(prefix, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    whole = decode(ids)
    assert whole.endswith(text)
    before = len(whole) - len(text)
    spans, start = [], 0
    for t in range(len(ids)):
        prefix = decode(ids[: t + 1])
        if prefix.endswith("\ufffd"):
            spans.append(None)
            continue
        end = max(0, len(prefix) - before)
        spans.append((start, end))
        start = end
    return spans


def read_slowly(tokenizer, ids, text):
    """(text, place, digits right, number) of each token of digits, with or without spaces before them."""
    places, found = places_in(text), []
    for span in pieces_of(tokenizer, ids, text):
        piece = "" if span is None else text[span[0] : span[1]].lstrip(" ")
        if re.fullmatch("[0-9]+", piece):
            found.append((piece, *places[span[1] - 1]))
        else:
            found.append(None)
    return found


def targets_of(vocab, ids):
    """The same of `number_targets`, with (value, digits) in place of the text."""
    targets = number_targets(torch.tensor([ids]), vocab)
    found = []
    for t in range(len(ids)):
        if not targets.mask[0, t]:
            found.append(None)
            continue
        token = int(targets.classes[0, t])
        assert int(vocab.token_ids[token]) == ids[t]
        read = targets.places[0, t], targets.digits_right[0, t], targets.numbers[0, t]
        found.append((int(vocab.values[token]), int(vocab.lengths[token]), *map(int, read)))
    return found


def assert_read_as(tokenizer, vocab, text, numbers):
    """The targets are the slow reading's, and it spells the stated numbers, digit for digit."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    slow = read_slowly(tokenizer, ids, text)
    spelled = {}
    for piece, _, _, number in filter(None, slow):
        spelled[number] = spelled.get(number, "") + piece
    assert [spelled[n] for n in sorted(spelled)] == [number.replace(".", "") for number in numbers]
    assert targets_of(vocab, ids) == [
        None if entry is None else (int(entry[0]), len(entry[0]), *entry[1:]) for entry in slow
    ]


TEXTS = [
    # text, its numbers as they are written
    ("7", ["7"]),
    ("The answer is 42", ["42"]),
    ("In 1987 there were 1234567 of 10000000000", ["1987", "1234567", "10000000000"]),
    ("agent 007 in room 0042", ["007", "0042"]),
    ("pi is 3.14159, e is 2.718", ["3.14159", "2.718"]),
    ("1234567.8901234", ["1234567.8901234"]),
    ("-17 + -3.5 = -20.5", ["17", "3.5", "20.5"]),
    ("x=-4,y=+9", ["4", "9"]),
    ("1,234", ["1", "234"]),
    ("$1,234,567.89", ["1", "234", "567.89"]),
    (".5", ["5"]),
    ("p < .05 or p<.001", ["05", "001"]),
    ("1e-5", ["1", "5"]),
    ("6.02e23 and 1.5E+10", ["6.02", "23", "1.5", "10"]),
    ("2024-06-01", ["2024", "06", "01"]),
    ("on 06/01/2024 at 12:30:05.250", ["06", "01", "2024", "12", "30", "05.250"]),
    ("1.2.3", ["1.2", "3"]),
    ("v0.10.12-rc1", ["0.10", "12", "1"]),
    ("192.168.10.1", ["192.168", "10.1"]),
    ("1. First\n2. Second\n10. Tenth", ["1", "2", "10"]),
    ("The total is 42.", ["42"]),
    ("It costs 3.50. Then 4...", ["3.50", "4"]),
    (r"\frac{1}{2} + \sqrt{144}", ["1", "2", "144"]),
    ("$3.14$ and $$x_{12}^{3} = 0.25$$", ["3.14", "12", "3", "0.25"]),
    ("x = 10 ** 2", ["10", "2"]),
    ("a[12] += b[3:-1] % 0x1F", ["12", "3", "1", "0", "1"]),
    ("for i in range(0, 1000, 25):\n    y2 = i/1.5\n", ["0", "1000", "25", "2", "1.5"]),
    ("1 42 007 3", ["1", "42", "007", "3"]),
    ("3 .5 and 3. 5 and 3 . 5", ["3", "5", "3", "5", "3", "5"]),
    ("12\n34\t56  78", ["12", "34", "56", "78"]),
    ("50% of 80, the 8th, 3rd-4th, Q3", ["50", "80", "8", "3", "4", "3"]),
    ("x１2 and ７", ["2"]),
    ("٣4 or 10² or ½ of 5€", ["4", "10", "5"]),
]


@pytest.mark.parametrize(("text", "numbers"), TEXTS)
def test_the_slow_reading_finds_the_stated_numbers(text, numbers):
    assert [number[0] for number in NUMBER.finditer(text)] == numbers


# --- real tokenizers

KINDS = {
    # kind, number tokens, how many of them hold a space, longest
    "qwen2.5": ("digit", 10, 0, 1),
    "mistral-sentencepiece-v1": ("digit", 10, 0, 1),
    "mistral-sentencepiece-v3": ("digit", 10, 0, 1),
    "mistral-converted": ("digit", 10, 0, 1),
    "mistral-tekken": ("digit", 10, 0, 1),
    "smollm2": ("digit", 10, 0, 1),
    "cl100k": ("integer", 1110, 0, 3),
    "gpt2": ("integer", 1691, 697, 16),
    "deepseek-v4": ("integer", 1110, 0, 3),
    "llama-3": ("integer", 1110, 0, 3),
    "llama-4": ("integer", 1110, 0, 3),
}


def state_of(tokenizer):
    """All that a user could notice a change in."""
    names = (
        "special_tokens_map",
        "all_special_ids",
        "added_tokens_decoder",
        "padding_side",
        "truncation_side",
        "model_max_length",
        "chat_template",
        "init_kwargs",
        "split_special_tokens",
        "clean_up_tokenization_spaces",
    )
    attributes = {name: getattr(tokenizer, name, None) for name in names}
    state = {
        "length": len(tokenizer),
        "vocab": dict(tokenizer.get_vocab()),
        "attributes": copy.deepcopy({k: v for k, v in attributes.items() if not callable(v)}),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "encode_special_tokens")
        state["backend"] = {part: str(getattr(backend, part)) for part in (*parts, "truncation", "padding")}
    return state


def test_the_table_of_kinds_names_every_tokenizer():
    assert KINDS.keys() == REAL.keys()


@pytest.fixture(scope="module")
def vocab_of():
    """Each tokenizer's number vocabulary, read once."""
    known = {}

    def read(name):
        if name not in known:
            known[name] = NumberVocab.from_tokenizer(real_tokenizer(name))
        return known[name]

    return read


@pytest.mark.parametrize("name", REAL)
def test_number_tokens_of_a_real_tokenizer(name, vocab_of):
    tokenizer, vocab = real_tokenizer(name), vocab_of(name)
    kind, classes, after_space, longest = KINDS[name]
    assert (vocab.kind, len(vocab.token_ids), int(vocab.lengths.max())) == (kind, classes, longest)
    assert int(vocab.after_space.sum()) == after_space
    assert len(set(vocab.token_ids.tolist())) == classes
    # `x` in front: SentencePiece drops a space before the first token of a text.
    x = tokenizer.encode("x", add_special_tokens=False)
    decoded = [
        tokenizer.decode([*x, token], skip_special_tokens=True).removeprefix("x")
        for token in vocab.token_ids.tolist()
    ]
    assert [text.startswith(" ") for text in decoded] == vocab.after_space.tolist()
    texts = [text.strip() for text in decoded]
    assert torch.equal(vocab.values, torch.tensor([int(text) for text in texts], dtype=torch.float32))
    assert [len(text) for text in texts] == vocab.lengths.tolist()
    if classes == 10:
        assert texts == list(DIGITS)
    if classes == 1110:
        assert set(texts) == {f"{n:0{digits}}" for digits in (1, 2, 3) for n in range(10**digits)}
    (point,) = vocab.decimal_point_ids.tolist()
    assert tokenizer.decode([*x, point], skip_special_tokens=True) == "x."


@pytest.mark.parametrize("name", REAL)
def test_numbers_of_a_text_on_a_real_tokenizer(name, vocab_of):
    tokenizer, vocab = real_tokenizer(name), vocab_of(name)
    for text, numbers in TEXTS:
        assert_read_as(tokenizer, vocab, text, numbers)


@pytest.mark.parametrize("name", REAL)
def test_reading_a_real_tokenizer_changes_nothing_and_takes_below_two_seconds(name):
    tokenizer = real_tokenizer(name)
    before = state_of(tokenizer)
    start = time.process_time()
    NumberVocab.from_tokenizer(tokenizer)
    assert time.process_time() - start < 2
    assert state_of(tokenizer) == before


# --- odd ways to write a digit, on tokenizers made here


def fast(model, pre_tokenizer, decoder=None, normalizer=None, **special_tokens):
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoder or decoders.Fuse()
    if normalizer is not None:
        backend.normalizer = normalizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special_tokens)


def one_a_character(characters, normalizer=None, first=0):
    """One token a character; `first` is the id of the first one."""
    vocab = {"<unk>": 0, **{c: max(1, first) + i for i, c in enumerate(dict.fromkeys(characters))}}
    return fast(
        models.WordLevel(vocab, unk_token="<unk>"),
        pre_tokenizers.Split("", "isolated"),
        normalizer=normalizer,
        unk_token="<unk>",
    )


def sentencepiece(pieces, merges=()):
    """A BPE of SentencePiece's kind: `▁` for a space and before the text, bytes for what the pieces lack."""
    vocab = {
        piece: i for i, piece in enumerate(["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces])
    }
    backend = Tokenizer(models.BPE(vocab, list(merges), unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def byte_level(vocab_size=700, **special_tokens):
    """A byte-level BPE of GPT-2's kind, with tokens such as ` 42`, trained on sums."""
    draw = random.Random(0)
    corpus = [
        f"{draw.randrange(10 ** draw.randint(1, 3))}+{n % 89} = {draw.randrange(1000)}, or {n}.{n % 97}"
        for n in range(3000)
    ]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=sorted(special_tokens.values()),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special_tokens)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPACED_DIGITS = [f"▁{digit}" for digit in DIGITS]


def ids_of(tokenizer, pieces):
    return tokenizer.convert_tokens_to_ids(list(pieces))


def assert_the_ten_digits(tokenizer, pieces=DIGITS):
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.kind == "digit"
    assert vocab.token_ids.tolist() == ids_of(tokenizer, pieces)
    assert vocab.values.tolist() == list(range(10))
    assert not vocab.after_space.any()
    return vocab


def test_a_token_with_a_space_before_its_digits_begins_a_number():
    """Two number tokens stand side by side in `1 42` of GPT-2, which is not 142."""
    tokenizer = byte_level()
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert tokenizer.tokenize("1 4 7.5") == ["1", "Ġ4", "Ġ7", ".", "5"]
    assert int(vocab.after_space.sum()) > 10
    for text, numbers in TEXTS:
        assert_read_as(tokenizer, vocab, text, numbers)


def test_sentencepiece_digits_with_a_space_are_classes_of_their_own():
    tokenizer = sentencepiece(
        ["▁", ".", *LETTERS, *DIGITS, *SPACED_DIGITS], [("▁", digit) for digit in DIGITS]
    )
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.kind == "integer"
    assert sorted(vocab.token_ids.tolist()) == sorted(ids_of(tokenizer, [*DIGITS, *SPACED_DIGITS]))
    assert vocab.token_ids[vocab.after_space].tolist() == ids_of(tokenizer, SPACED_DIGITS)
    assert tokenizer.tokenize("1 42.5 x7") == ["▁1", "▁4", "2", ".", "5", "▁", "x", "7"]
    for text, numbers in [("1 42.5 x7", ["1", "42.5", "7"]), ("3. 5 .5", ["3", "5", "5"])]:
        assert_read_as(tokenizer, vocab, text, numbers)


def test_a_sentencepiece_digit_that_is_never_given_is_no_number_token():
    """`▁7` is in the vocabulary, but no merge leads to it."""
    tokenizer = sentencepiece(["▁", ".", *LETTERS, *DIGITS, *SPACED_DIGITS])
    assert tokenizer.tokenize("1 42") == ["▁", "1", "▁", "4", "2"]
    assert_the_ten_digits(tokenizer)


def test_spaced_digits_that_stand_inside_numbers_too_do_not_begin_them():
    """Each split gets its own `▁`, so there is no other digit than `▁7`."""
    vocab = {piece: i for i, piece in enumerate(["<unk>", "▁.", "▁a", "▁", *SPACED_DIGITS])}
    tokenizer = fast(
        models.WordLevel(vocab, unk_token="<unk>"),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.Punctuation(),
                pre_tokenizers.Metaspace(prepend_scheme="always"),
            ]
        ),
        decoders.Metaspace(),
        unk_token="<unk>",
    )
    assert tokenizer.tokenize("a42.5") == ["▁a", "▁4", "▁2", "▁.", "▁5"]
    number_vocab = assert_the_ten_digits(tokenizer, SPACED_DIGITS)
    found = targets_of(number_vocab, tokenizer.encode("a42.5", add_special_tokens=False))
    assert found == [None, (4, 1, 1, 1, 0), (2, 1, 0, 0, 0), None, (5, 1, -1, 0, 0)]


def test_byte_pieces_are_the_digits_where_the_vocabulary_has_no_others():
    tokenizer = sentencepiece(["▁", *LETTERS])
    assert tokenizer.tokenize("a42.5") == ["▁", "a", "<0x34>", "<0x32>", "<0x2E>", "<0x35>"]
    vocab = assert_the_ten_digits(tokenizer, [f"<0x3{digit}>" for digit in DIGITS])
    assert vocab.decimal_point_ids.tolist() == ids_of(tokenizer, ["<0x2E>"])
    for text, numbers in [("a42.5 and 7", ["42.5", "7"]), ("７ x2", ["2"])]:
        assert_read_as(tokenizer, vocab, text, numbers)


def test_byte_pieces_are_no_number_tokens_beside_digits():
    tokenizer = sentencepiece(["▁", ".", *LETTERS, *DIGITS])
    vocab = assert_the_ten_digits(tokenizer)
    assert vocab.decimal_point_ids.tolist() == ids_of(tokenizer, ["."])
    assert_read_as(tokenizer, vocab, "x７8", ["8"])


UNICODE_DIGITS = "０１２３４５６７８９٠١٢٣٤٥٦٧٨٩०१२७²³½Ⅷ①"


def test_other_digits_of_unicode_are_no_number_tokens_and_end_a_run():
    tokenizer = one_a_character(f"{DIGITS}{UNICODE_DIGITS}ab.")
    vocab = assert_the_ten_digits(tokenizer)
    found = targets_of(vocab, tokenizer.encode("1７2٣4²5.６", add_special_tokens=False))
    assert found == [
        (1, 1, 0, 0, 0),
        None,
        (2, 1, 0, 0, 1),
        None,
        (4, 1, 0, 0, 2),
        None,
        (5, 1, 0, 0, 3),
        None,
        None,
    ]


def test_digits_that_the_normaliser_writes_in_ascii_are_digits():
    tokenizer = one_a_character(f"{DIGITS}ab.", normalizers.NFKC())
    vocab = assert_the_ten_digits(tokenizer)
    found = targets_of(vocab, tokenizer.encode("４2²", add_special_tokens=False))
    assert found == [(4, 1, 2, 2, 0), (2, 1, 1, 1, 0), (2, 1, 0, 0, 0)]


@pytest.mark.parametrize("added", ["<num>", "<extra_id_7>", "1st", ".5", "1,000", "-1", "３", "7 "])
@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
def test_an_added_token_that_is_more_than_digits_is_no_number_token(added, special):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([added], special_tokens=special)
    vocab = assert_the_ten_digits(tokenizer)
    assert tokenizer.convert_tokens_to_ids(added) not in vocab.token_ids.tolist()


def test_a_token_that_mixes_digits_with_more_ends_a_run():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["1st", ".5"])
    vocab = NumberVocab.from_tokenizer(tokenizer)
    found = targets_of(vocab, tokenizer.encode("21st4.5", add_special_tokens=False))
    assert found == [(2, 1, 0, 0, 0), None, (4, 1, 0, 0, 1), None]


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
def test_added_tokens_of_digits_are_number_tokens(special):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["10", "007"], special_tokens=special)
    before = state_of(tokenizer)
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert state_of(tokenizer) == before
    assert vocab.kind == "integer"
    assert vocab.values.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10]
    assert vocab.lengths.tolist() == [1] * 8 + [3, 1, 1, 2]
    ids = tokenizer.encode("310.0075", add_special_tokens=False)
    assert targets_of(vocab, ids) == [
        (3, 1, 2, 2, 0),
        (10, 2, 0, 0, 0),
        None,
        (7, 3, -3, 1, 0),
        (5, 1, -4, 0, 0),
    ]


def test_an_added_token_of_digits_that_is_only_taken_as_a_word_is_found():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("10", single_word=True, lstrip=True)])
    ten = tokenizer.convert_tokens_to_ids("10")
    assert tokenizer.encode("a 10", add_special_tokens=False)[1:] == [ten]
    assert ten not in tokenizer.encode("a10", add_special_tokens=False)
    assert ten in NumberVocab.from_tokenizer(tokenizer).token_ids.tolist()


def test_the_digits_that_there_are_count_and_the_others_are_named_in_the_log(caplog):
    tokenizer = one_a_character("0124589ab.")
    with caplog.at_level(logging.WARNING, logger="numsft"):
        vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.kind == "integer"
    assert vocab.values.tolist() == [0, 1, 2, 4, 5, 8, 9]
    (record,) = caplog.records
    assert "3, 6, 7" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_a_digit_that_takes_several_tokens_is_no_number_token(caplog):
    tokenizer = one_a_character(f"{DIGITS}ab.", normalizers.Replace("7", "ab"))
    vocab = NumberVocab.from_tokenizer(tokenizer)
    assert vocab.values.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    found = targets_of(vocab, tokenizer.encode("172", add_special_tokens=False))
    assert found == [(1, 1, 0, 0, 0), None, None, (2, 1, 0, 0, 1)]
    assert "single digit 7:" in caplog.text


def test_ten_digits_are_not_warned_of(caplog):
    NumberVocab.from_tokenizer(tiny_tokenizer())
    assert not caplog.records


def test_ids_above_the_length_of_the_tokenizer_are_found():
    """cl100k has 100,261 tokens and ids up to 100,276."""
    tokenizer = one_a_character(f"ab.{DIGITS}", first=500)
    assert len(tokenizer) < 500
    assert_the_ten_digits(tokenizer)


def test_truncation_and_padding_of_a_fast_tokenizer_stay_as_they_were():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(3, stride=1, direction="left")
    tokenizer.backend_tokenizer.enable_padding(length=12, pad_id=2, pad_token="<pad>")
    tokenizer.backend_tokenizer.encode_special_tokens = True
    before = tokenizer.backend_tokenizer.to_str()
    assert_the_ten_digits(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert tokenizer.backend_tokenizer.encode_special_tokens


class Characters(PreTrainedTokenizer):
    """A slow tokenizer: plain Python, one token a character."""

    def __init__(self, characters, **kwargs):
        self.pieces = ["<unk>", *characters]
        super().__init__(unk_token="<unk>", **kwargs)

    @property
    def vocab_size(self):
        return len(self.pieces)

    def get_vocab(self):
        return {**{piece: i for i, piece in enumerate(self.pieces)}, **self.added_tokens_encoder}

    def _tokenize(self, text):
        return list(text)

    def _convert_token_to_id(self, token):
        return self.pieces.index(token) if token in self.pieces else 0

    def _convert_id_to_token(self, index):
        return self.pieces[index]


def test_a_slow_tokenizer_is_read_like_a_fast_one():
    tokenizer = Characters(f"ab. {DIGITS[::-1]}")
    vocab = assert_the_ten_digits(tokenizer)
    assert vocab.decimal_point_ids.tolist() == ids_of(tokenizer, ["."])


# --- losses on a tokenizer with tokens of several digits


@pytest.fixture(scope="module")
def integers():
    return byte_level(eos_token="<eos>", pad_token="<pad>")


@pytest.mark.parametrize("name", DIGIT_LOSSES)
def test_a_loss_on_single_digits_refuses_tokens_of_several(tmp_path, integers, name):
    vocab = NumberVocab.from_tokenizer(integers)
    logits, labels = torch.zeros(1, 3, len(integers)), torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(ValueError) as from_function:
        number_loss(logits, labels, vocab, name)
    with pytest.raises(ValueError) as from_trainer:
        tiny_trainer(
            tmp_path, model=tiny_llama(len(integers)), dataset=sums(), tokenizer=integers, number_loss=name
        )
    for caught in (from_function, from_trainer):
        message = str(caught.value)
        assert name in message
        assert "ten digits" in message
        assert "\n" not in message


def test_twice_ten_single_digits_are_refused_too():
    tokenizer = sentencepiece(
        ["▁", ".", *LETTERS, *DIGITS, *SPACED_DIGITS], [("▁", digit) for digit in DIGITS]
    )
    vocab = NumberVocab.from_tokenizer(tokenizer)
    with pytest.raises(ValueError, match="20 number tokens of 1 digit;"):
        number_loss(torch.zeros(1, 3, 400), torch.zeros(1, 3, dtype=torch.long), vocab, DIGIT_LOSSES[0])


def sums(rows=8):
    """Integers, decimals and numbers side by side; every fourth completion has none."""
    draw = random.Random(1)
    pairs = [(draw.randrange(1, 1000), draw.randrange(1, 100)) for _ in range(rows)]
    return Dataset.from_dict(
        {
            "prompt": [f"{a}+{b} =" for a, b in pairs],
            "completion": [
                "no digit here" if i % 4 == 3 else f" {a + b}, or {a}.{b} 7 42" + " ok" * (i % 3)
                for i, (a, b) in enumerate(pairs)
            ],
        }
    )


@pytest.mark.parametrize("name", VALUE_LOSSES)
def test_a_step_on_tokens_of_several_digits_is_the_same_however_it_is_cut(tmp_path, integers, name):
    settings = dict(
        dataset=sums(),
        tokenizer=integers,
        number_loss=name,
        number_loss_weight=1.0,
        place_weighting="float",
    )
    trainer = tiny_trainer(tmp_path / "whole", model=tiny_llama(len(integers)), **settings)
    assert (trainer.vocab.kind, int(trainer.vocab.lengths.max())) == ("integer", 3)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
    logits = tiny_llama(len(integers))(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
    ).logits
    expected = number_loss(logits, batch["labels"], trainer.vocab, name, place_weighting="float")

    (whole,), (log,) = train_recorded(trainer)
    (cut,), (cut_log,) = train_recorded(
        tiny_trainer(
            tmp_path / "cut",
            model=tiny_llama(len(integers)),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            **settings,
        )
    )
    assert_gradients_equal(cut, whole)
    for key in ("loss", "number_loss", "digits_per_step"):
        assert cut_log[key] == pytest.approx(log[key], rel=1e-5), key
    assert log["number_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_digits_per_step_counts_the_number_tokens_that_are_in_the_text(tmp_path, integers):
    trainer = tiny_trainer(
        tmp_path,
        model=tiny_llama(len(integers)),
        dataset=sums(),
        tokenizer=integers,
        number_loss="ntl_was",
    )
    _, (log,) = train_recorded(trainer)
    completions = [
        (integers.encode(row["completion"], add_special_tokens=False), row["completion"]) for row in sums()
    ]
    tokens = [
        entry for ids, text in completions for entry in read_slowly(integers, ids, text) if entry is not None
    ]
    assert log["digits_per_step"] == len(tokens) > 30
