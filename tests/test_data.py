"""Data: from a recipe's keys to prompt/completion rows, with nothing held out also trained on."""

import dataclasses
import json
import os
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_tokenizer

from numsft.config import DataConfig
from numsft.data import ALPACA, NUPA_DEFAULT_TASKS, last_number, load_datasets, prompt_key
from numsft.data.prompts import FAMILY
from numsft.errors import UserError
from numsft.evaluation.nupa import TASKS

DEFAULTS = dict(
    gguf_file=None,
    base_model_id=None,
    dataset=None,
    dataset_config=None,
    dataset_split="train",
    eval_dataset=None,
    eval_size=0,
    prompt_column=None,
    completion_column=None,
    prompt_template=None,
    max_samples=None,
    before_after=0,
    nupa_tasks=None,
    nupa_digits=[1, 4],
    nupa_size=200,
    nupa_seed=0,
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Prepared rows go to a cache of the tests' own."""
    import datasets.config

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("cache")
    yield
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture
def load(tokenizer):
    def load(dataset, *, seed=0, use=tokenizer, **keys):
        settings = SimpleNamespace(**{**DEFAULTS, **keys, "dataset": str(dataset)})
        return load_datasets(settings, use, seed=seed)

    return load


@pytest.fixture
def write(tmp_path):
    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        if name.endswith(".parquet"):
            Dataset.from_list(rows).to_parquet(path)
        elif name.endswith(".json"):
            path.write_text(json.dumps(rows))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def questions(count, answer="{0}"):
    return [{"question": f"What is {i}?", "answer": answer.format(i)} for i in range(count)]


def message(caught):
    text = str(caught.value)
    assert "\n" not in text and len(text) < 900
    return text


# --- adapters and templates ---


def test_mathinstruct_rows_get_the_evaluation_prompt_and_one_space_before_the_answer(load, write):
    path = write([{"source": "x", "instruction": "Add 1 and 2.", "output": "The answer is 3"}])
    row = load(path).train[0]
    assert row["prompt"] == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\nAdd 1 and 2.\n\n### Response:"
    )
    assert row["completion"] == " The answer is 3"
    assert list(row) == ["prompt", "completion"]


def test_an_alpaca_input_stands_below_its_instruction(load, write):
    path = write([{"instruction": "Add.", "input": "1 and 2", "output": "3"}])
    assert "### Instruction:\nAdd.\n1 and 2\n\n### Response:" in load(path).train[0]["prompt"]


def test_gsm8k_rows_get_a_line_break_between_question_and_answer(load, write):
    assert load(write(questions(1))).train[0] == {"prompt": "What is 0?\n", "completion": "0"}


def test_prompt_and_completion_columns_stay_as_they_are(load, write):
    row = {"prompt": "1 + 1 =", "completion": " 2 {x} "}
    assert load(write([{**row, "extra": 5}])).train[0] == row


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.parquet"])
def test_json_jsonl_and_parquet_files_give_the_same_rows(load, write, name):
    rows = questions(5)
    assert load(write(rows, name)).train["completion"] == [row["answer"] for row in rows]


def test_a_text_that_looks_like_a_date_stays_a_text(load, write):
    rows = [{"question": "When?", "answer": "2020-01-01"}, {"question": "And then?", "answer": "2020-01-02"}]
    assert load(write(rows)).train["completion"] == ["2020-01-01", "2020-01-02"]


def test_numbers_are_written_as_a_person_would(load, write):
    rows = [
        {"question": "a", "answer": 145.0},
        {"question": "b", "answer": 2.5},
        {"question": "c", "answer": 7},
    ]
    assert load(write(rows)).train["completion"] == ["145", "2.5", "7"]


def test_named_columns_override_the_adapter(load, write):
    rows = [{"question": "no", "answer": "no", "problem": "Q ", "solution": "S"}]
    data = load(write(rows), prompt_column="problem", completion_column="solution")
    assert data.train[0] == {"prompt": "Q ", "completion": "S"}


def test_every_assistant_turn_of_a_chat_is_trained_once_with_what_came_before(load, write):
    turns = [("system", "s"), ("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4")]
    chat = [{"role": role, "content": content} for role, content in turns]
    rows = list(load(write([{"messages": chat}])).train)
    assert rows == [
        {"prompt": chat[:2], "completion": chat[2:3]},
        {"prompt": chat[:4], "completion": chat[4:]},
    ]


def test_message_lists_in_prompt_and_completion_stay_messages(load, write):
    row = {
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "completion": [{"role": "assistant", "content": "2"}],
    }
    assert load(write([row])).train[0] == row


def test_the_chat_template_turns_text_into_messages(load, write):
    row = load(write(questions(1)), prompt_template="chat").train[0]
    assert row["prompt"] == [{"role": "user", "content": "What is 0?"}]
    assert row["completion"] == [{"role": "assistant", "content": "0"}]


def test_a_template_of_ones_own_keeps_braces_and_backslashes(load, write):
    path = write([{"prompt": r"\frac{1}{2} {x}", "completion": "0.5"}])
    rows = [load(path, prompt_template=text).train[0] for text in ("Q: {prompt}\nA:", "Q: {prompt}\nA: ")]
    assert rows[0] == {"prompt": "Q: \\frac{1}{2} {x}\nA:", "completion": " 0.5"}
    assert rows[1] == {"prompt": "Q: \\frac{1}{2} {x}\nA: ", "completion": "0.5"}


def test_several_templates_are_drawn_row_by_row_and_by_seed(load, write):
    path = write(questions(200))
    templates = ["alpaca", "Q: {prompt}"]
    first, again, other = (load(path, prompt_template=templates, seed=s).train["prompt"] for s in (1, 1, 2))
    share = sum(prompt.startswith("Q: ") for prompt in first) / 200
    assert 0.3 < share < 0.7
    assert first[:] == again[:] != other[:]


def test_the_family_of_alpaca_templates_is_twelve_that_end_where_the_answer_begins(load, write):
    path = write(questions(1))
    prompts = [load(path, prompt_template=name).train[0] for name in FAMILY]
    assert list(FAMILY) == [f"alpaca_{number}" for number in range(1, 13)]
    assert len({row["prompt"] for row in prompts}) == 12
    for row in prompts:
        assert re.search(r"Instruction:\nWhat is 0\?\n\n(### )?Response:$", row["prompt"])
        assert row["completion"] == " 0"
    assert prompts[0] == load(path, prompt_template="alpaca").train[0]


def template_of(prompt):
    (name,) = [name for name, text in FAMILY.items() if prompt.startswith(text.partition("{prompt}")[0])]
    return name


def test_alpaca_mix_is_all_twelve_alike(load, write):
    path = write(questions(1200))
    mixed = load(path, prompt_template="alpaca_mix", seed=3).train["prompt"][:]
    counts = Counter(map(template_of, mixed))
    assert counts.keys() == FAMILY.keys() and 60 < min(counts.values()) <= max(counts.values()) < 140
    assert mixed == load(path, prompt_template=list(FAMILY), seed=3).train["prompt"][:]


def test_a_rows_template_depends_on_its_prompt_and_the_seed_alone(load, write):
    # DEL's published script draws one template a process, before it seeds: each rank trains on its own.
    rows = questions(40)
    templates = {}
    for name, order in (("as.jsonl", rows), ("reversed.jsonl", rows[::-1]), ("few.parquet", rows[::3])):
        prompts = load(write(order, name), prompt_template="alpaca_mix").train["prompt"]
        for row, prompt in zip(order, prompts, strict=True):
            templates.setdefault(row["question"], set()).add(template_of(prompt))
    assert all(len(names) == 1 for names in templates.values())
    # What another process, machine or resumed run must draw too.
    first = [templates[f"What is {i}?"].pop() for i in range(6)]
    assert first == ["alpaca_9", "alpaca_4", "alpaca_11", "alpaca_3", "alpaca_5", "alpaca_3"]


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("alpacca", "alpacca"),
        ("alpaca_13", "alpaca_12"),
        (["alpaca", "alpaca_0"], "alpaca_0"),
        ([], "empty"),
        (["chat", "alpaca"], "chat alone"),
        (["alpaca_mix", "chat"], "chat alone"),
        ("Question", "{prompt}"),
        (3, "3"),
    ],
)
def test_a_template_that_is_none_is_refused(load, write, template, named):
    with pytest.raises(UserError) as caught:
        load(write(questions(1)), prompt_template=template)
    assert named in message(caught)


def test_chat_without_a_chat_template_is_refused(load, write):
    bare = tiny_tokenizer()
    bare.chat_template = None
    chat = [{"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}]
    for rows, keys in ((questions(1), {"prompt_template": "chat"}), (chat, {})):
        with pytest.raises(UserError) as caught:
            load(write(rows), use=bare, **keys)
        assert "no chat template" in message(caught)


def test_a_text_template_on_chat_messages_is_refused(load, write):
    chat = [{"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}]
    with pytest.raises(UserError, match="chat messages"):
        load(write(chat), prompt_template="alpaca")


# --- holding out ---


@settings(deadline=None, max_examples=12)
@given(
    prompts=st.lists(st.integers(0, 12), min_size=15, max_size=40),
    size=st.one_of(st.integers(1, 3), st.floats(0.05, 0.2)),
    seed=st.integers(0, 5),
)
def test_train_and_evaluation_share_no_prompt_even_with_duplicate_rows(tmp_path_factory, prompts, size, seed):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [
        {"prompt": f"{n} +  1 = " if i % 2 else f"{n} + 1 =", "completion": str(i)}
        for i, n in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = SimpleNamespace(**{**DEFAULTS, "dataset": str(path), "eval_size": size})
    if len(set(prompts)) <= 3:
        return
    data = load_datasets(keys, tiny_tokenizer(), seed=seed)
    wanted = size if isinstance(size, int) else max(1, round(size * len(rows)))
    assert len(data.evaluation) == wanted
    trained, judged = ({p.split(" ")[0] for p in part["prompt"]} for part in (data.train, data.evaluation))
    assert not trained & judged
    assert trained | judged == {str(n) for n in prompts}


def test_both_turns_of_a_conversation_are_on_one_side(load, write):
    rows = [
        {
            "messages": [
                {"role": r, "content": f"{i}{c}"}
                for r, c in zip(["user", "assistant"] * 2, "abcd", strict=True)
            ]
        }
        for i in range(30)
    ]
    data = load(write(rows), eval_size=10)
    opening = [{row["prompt"][0]["content"] for row in part} for part in (data.train, data.evaluation)]
    assert not opening[0] & opening[1]


def test_the_held_out_rows_follow_the_seed_and_survive_appended_rows(load, write):
    few, more = write(questions(100), "few.jsonl"), write(questions(110), "more.jsonl")
    first, again, other = (set(load(few, eval_size=20, seed=s).evaluation["prompt"]) for s in (1, 1, 2))
    assert first == again != other
    assert len(first & set(load(more, eval_size=20, seed=1).evaluation["prompt"])) >= 10


def test_training_rows_that_the_evaluation_file_contains_are_left_out_and_counted(load, write):
    train, evaluation = write(questions(10)), write(questions(13)[8:], "eval.jsonl")
    data = load(train, eval_dataset=str(evaluation))
    assert (len(data.train), len(data.evaluation)) == (8, 5)
    assert any(note.startswith("2 training rows left out") for note in data.notes)


def test_an_evaluation_file_with_every_training_row_is_refused(load, write):
    with pytest.raises(UserError, match="every one of the 10 training rows"):
        load(write(questions(10)), eval_dataset=str(write(questions(10), "eval.jsonl")))


def test_max_samples_takes_the_first_training_rows_and_leaves_the_evaluation_rows_alone(load, write):
    path = write(questions(200))
    few, all_rows = load(path, eval_size=20, max_samples=30), load(path, eval_size=20)
    assert len(few.train) == 30 and len(all_rows.train) == 180
    assert few.evaluation["prompt"][:] == all_rows.evaluation["prompt"][:]
    assert few.train[:] == all_rows.train[:30]


@pytest.mark.parametrize("size", [-1, 1.5, True, "5", float("nan"), 10, 11])
def test_an_eval_size_that_makes_no_sense_is_refused(load, write, size):
    with pytest.raises(UserError) as caught:
        load(write(questions(10)), eval_size=size)
    assert "eval_size" in message(caught) and str(size) in message(caught)


def test_eval_size_beside_eval_dataset_is_refused(load, write):
    path = write(questions(10))
    with pytest.raises(UserError, match="keep one of them"):
        load(path, eval_dataset=str(path), eval_size=2)


# --- before and after ---


def test_before_after_items_are_held_out_with_the_last_number_as_gold(load, write):
    data = load(write(questions(50, "so {0} apples\n#### 1,{0:03d}")), before_after=8)
    assert data.evaluation is None and len(data.held_out) == 8 and len(data.train) == 42
    assert not {item.prompt for item in data.held_out} & set(data.train["prompt"])
    for item in data.held_out:
        number = int(item.prompt.removeprefix("What is ").removesuffix("?\n"))
        assert item.gold == str(1000 + number)


def test_before_after_items_come_from_the_evaluation_rows_and_say_where_they_are_fewer(load, write):
    data = load(write(questions(50)), eval_size=5, before_after=8)
    assert {item.prompt for item in data.held_out} == set(data.evaluation["prompt"])
    assert any("5 items of the 8" in note for note in data.notes)


def test_before_after_without_any_number_is_refused(load, write):
    with pytest.raises(UserError, match="contains a number"):
        load(write(questions(50, "none")), before_after=3)


def test_a_chat_prompt_to_generate_from_ends_where_the_assistant_begins(load, write):
    item = load(write(questions(9)), prompt_template="chat", before_after=1).held_out[0]
    assert item.prompt == f"<|im_start|>user\nWhat is {item.gold}?<|im_end|><|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 1,234", "1234"),
        ("It is -5.", "-5"),
        ("10-5 = 5", "5"),
        ("from 3-7", "7"),
        ("x = .5", ".5"),
        ("one of 1, 2, 3,", "3"),
        ("$12.50", "12.50"),
        ("none", None),
    ],
)
def test_last_number(text, number):
    assert last_number(text) == number


# --- number tasks ---


def test_number_tasks_train_on_exact_answers_and_hold_out_other_items(load):
    data = load("nupa", eval_size=60, before_after=40, nupa_size=500)
    assert (len(data.train), len(data.evaluation), len(data.held_out)) == (500, 60, 40)
    for row in data.train:
        a, operator, b, _ = row["prompt"].split()
        if "." not in a + b:
            result = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[operator]
            assert row["completion"] == str(result)
    trained = set(data.train["prompt"])
    assert len(trained) == 500
    assert not trained & set(data.evaluation["prompt"])
    assert not trained & {item.prompt for item in data.held_out}
    assert any("." in item.gold for item in data.held_out)


def test_number_tasks_keep_a_fraction_whole_as_gold(load):
    items = load("nupa", before_after=5, nupa_tasks=["fraction_add"]).held_out
    assert all("/" in item.gold for item in items)


def test_an_unset_seed_of_the_number_tasks_is_that_of_the_run(load):
    prompts = [
        load("nupa", nupa_seed=own, seed=run).train["prompt"][:]
        for own, run in ((None, 3), (3, 5), (None, 5))
    ]
    assert prompts[0] == prompts[1] != prompts[2]


def test_unset_number_tasks_are_the_ones_that_the_help_names(load):
    (help_text,) = [
        field.metadata["help"] for field in dataclasses.fields(DataConfig) if field.name == "nupa_tasks"
    ]
    assert tuple(name for name in re.findall(r"\w+", help_text) if name in TASKS) == NUPA_DEFAULT_TASKS
    assert f"of the {len(TASKS)} in" in help_text
    unset, named = (load("nupa", nupa_tasks=t).train["prompt"][:] for t in (None, [*NUPA_DEFAULT_TASKS]))
    assert unset == named


def test_an_unset_size_of_the_number_tasks_is_ten_thousand(load):
    assert len(load("nupa", nupa_size=None).train) == 10_000


def test_number_tasks_work_with_every_template(load):
    assert load("nupa", prompt_template="alpaca").train[0]["prompt"].startswith(ALPACA[:40])
    assert load("nupa", prompt_template="chat").train[0]["prompt"][0]["role"] == "user"


def test_too_few_number_items_are_said_not_repeated(load):
    data = load("nupa", nupa_digits=[1, 1], nupa_tasks=["integer_add"], nupa_size=500)
    assert len(data.train) <= 100 and any("of the 500 asked for" in note for note in data.notes)


@pytest.mark.parametrize(
    "keys",
    [
        {"nupa_tasks": ["integer_ad"]},
        {"nupa_digits": [4, 1]},
        {"nupa_digits": 4},
        {"nupa_size": 0},
        {"nupa_tasks": ["integer_sig_fig"], "nupa_digits": [1, 1]},
        {"before_after": -1},
        {"max_samples": 0},
    ],
)
def test_number_task_keys_that_make_no_sense_are_refused(load, keys):
    with pytest.raises(UserError) as caught:
        load("nupa", **keys)
    assert message(caught)


# --- bad input ---


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"question": "a", "answer": "b"}\n{"question": "a", \n', "line 2 is not valid JSON"),
        ('{"question": "a", "answer": "b"}\n\n3\n', "line 3 is a int"),
        ('{"question": "a", "answer": "b"}\n{"question": "a"}\n', "line 2 has nothing in column 'answer'"),
        ('{"question": "a", "answer": "b"}\n{"question": "a", "answer": [1]}\n', "line 2 has list"),
        ('{"question": "a", "answer": true}\n', "line 1 has bool"),
        ('{"messages": [{"role": "user", "content": "a"}]}\n', "line 1 has no assistant message"),
        ('{"messages": [{"role": "user"}]}\n', "line 1 has a message"),
        ('{"messages": "hello"}\n', "line 1 has no message list"),
        ("", "no rows"),
        ("\n\n", "no rows"),
        ("[]", "no rows"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(load, tmp_path, text, named):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load(path)
    assert named in message(caught) and "rows.jsonl" in message(caught)


def test_columns_that_do_not_fit_are_listed_with_those_expected_and_the_keys_to_set(load, write):
    with pytest.raises(UserError) as caught:
        load(write([{"problem": "a", "solution": "b"}]))
    for word in ("problem, solution", "instruction and output", "prompt_column", "completion_column"):
        assert word in message(caught)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"prompt_column": "question"}, "completion_column"),
        ({"completion_column": "answer"}, "prompt_column"),
        ({"prompt_column": "qestion", "completion_column": "answer"}, "qestion"),
    ],
)
def test_a_wrong_column_key_lists_the_columns_found(load, write, keys, named):
    with pytest.raises(UserError) as caught:
        load(write(questions(1)), **keys)
    assert named in message(caught) and "question, answer" in message(caught)


@pytest.mark.parametrize("name", ["missing.jsonl", "folder", "rows.csv", "broken.parquet", "latin.jsonl"])
def test_a_file_that_cannot_be_read_is_named(load, tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "broken.parquet").write_text("xx")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9", "answer": "1"}\n')
    with pytest.raises(UserError) as caught:
        load(tmp_path / name)
    assert name in message(caught)


def test_a_split_of_a_file_is_refused(load, write):
    with pytest.raises(UserError, match="has no splits"):
        load(write(questions(1)), dataset_split="test")


def test_a_hub_dataset_out_of_reach_is_one_sentence(load):
    with pytest.raises(UserError) as caught:
        load("nobody/no-such-dataset")
    assert "nobody/no-such-dataset" in message(caught) and "connection" in message(caught)


def test_text_and_messages_in_one_file_are_refused(load, write):
    chat = [{"role": "user", "content": "a"}]
    rows = [{"prompt": "a", "completion": "b"}, {"prompt": chat, "completion": chat}]
    with pytest.raises(UserError, match="line 2 mixes"):
        load(write(rows))


def test_a_changed_file_is_read_again(load, write):
    path = write(questions(3))
    assert len(load(path).train) == 3
    write(questions(5))
    assert len(load(path).train) == 5


def test_the_hash_of_a_prompt_is_blind_to_white_space_only():
    assert prompt_key("1 +  1\n") == prompt_key("1 + 1") != prompt_key("1 + 2")


@pytest.mark.skipif("NUMSFT_DATA_DIR" not in os.environ, reason="NUMSFT_DATA_DIR is not set")
def test_gsm8k_is_read_whole_with_its_golds(load):
    path = Path(os.environ["NUMSFT_DATA_DIR"]) / "gsm8k" / "test.jsonl"
    data = load(path, eval_size=100, before_after=100)
    assert len(data.train) + len(data.evaluation) == 1319
    golds = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        golds[row["question"] + "\n"] = row["answer"].split("####")[1].strip().replace(",", "")
    assert all(item.gold == golds[item.prompt] for item in data.held_out)


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the Hub: {(id, config, split): rows}; asks are recorded."""
    splits, asked = {}, []

    def load_dataset(name, config=None, *, split):
        asked.append((name, config, split))
        if (name, config, split) not in splits:
            raise ValueError(f'Unknown split "{split}".\nShould be one of ...')
        return Dataset.from_list(splits[name, config, split])

    monkeypatch.setattr("numsft.data.read.load_dataset", load_dataset)
    return SimpleNamespace(splits=splits, asked=asked)


def test_a_hub_evaluation_set_is_its_test_or_validation_split(load, hub):
    hub.splits["org/set", "main", "train"] = questions(6)
    hub.splits["org/set", "main", "validation"] = questions(9)[5:]
    data = load("org/set", dataset_config="main", eval_dataset="org/set")
    assert [split for _, _, split in hub.asked] == ["train", "test", "validation"]
    assert (len(data.train), len(data.evaluation)) == (5, 4)


def test_an_unknown_hub_split_is_one_sentence_with_the_reason(load, hub):
    with pytest.raises(UserError) as caught:
        load("org/set", dataset_split="trian")
    assert 'Unknown split "trian"' in message(caught) and "dataset_split" in message(caught)
