"""The text of a card: its header, its code for loading, and giving it another name."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLACE = "  # this repository, or a folder with a copy of it"
_NAME_LINE = re.compile(rf'^name = ".*"{re.escape(_PLACE)}$', re.MULTILINE)
_TITLE = re.compile(r"\A(?:---\n.*?\n---\n)?\s*# (?P<title>[^\n]*)$", re.DOTALL | re.MULTILINE)
_SECTION = r"^## {heading}\n.*?(?=^## |\Z)"
_IMPORTS = ["from transformers import AutoModelForCausalLM, AutoTokenizer"]
_HEADER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


def header_lines(header: dict[str, Any]) -> list[str]:
    """Return the YAML block that a card starts with, in the order given."""
    return ["---", *yaml.safe_dump(header, sort_keys=False, allow_unicode=True).splitlines(), "---"]


def loading_lines(name: str, base: str | None, *, adapter: bool) -> list[str]:
    """Return what stands under "How to load": code that runs as it is, without numsft.

    Args:
        name: Repository or folder that the code loads.
        base: Repository or folder of an adapter's base.
        adapter: Whether it is an adapter or a whole model.
    """
    if adapter and (base is None or base.startswith("package:")):
        return [
            "The base is not on the Hub. Merge the adapter into it first: "
            f"`python -m numsft.hub merge {name} --output_dir merged`."
        ]
    code = [f'name = "{name}"{_PLACE}']
    if adapter:
        code = ["from peft import PeftModel", *_IMPORTS, "", *code]
        code += [
            f'base = AutoModelForCausalLM.from_pretrained("{base}")',
            "model = PeftModel.from_pretrained(base, name)",
        ]
    else:
        code = [*_IMPORTS, "", *code, "model = AutoModelForCausalLM.from_pretrained(name)"]
    code += [
        "tokenizer = AutoTokenizer.from_pretrained(name)",
        "",
        'inputs = tokenizer("17 + 25 = ", return_tensors="pt")  # or as in the training',
        "output = model.generate(",
        "    inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=16",
        ")",
        "print(tokenizer.decode(output[0], skip_special_tokens=True))",
    ]
    return ["numsft is not needed.", "", "```python", *code, "```"]


def named(text: str, name: str) -> str:
    """Return a card of ours with another name in its heading and its code; any other text as it is."""
    if not _NAME_LINE.search(text):
        return text
    text = _NAME_LINE.sub(lambda _: f'name = "{name}"{_PLACE}', text)
    title = _TITLE.search(text)
    if title:
        text = text[: title.start("title")] + name.rpartition("/")[2] + text[title.end("title") :]
    return text


def merged(text: str, name: str, base: str) -> str:
    """Return the card of the model that an adapter with card `text` was merged into.

    Args:
        text: The adapter's card; where it is not one of ours, a short card is returned.
        name: Of the merged model: repository or folder.
        base: Of the adapter.
    """
    note = f"The adapter is merged into its base, `{base}`: this is a whole model."
    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    loading = "\n".join(["## How to load", "", *loading_lines(name, None, adapter=False)]) + "\n"
    title = name.rpartition("/")[2]
    found = _HEADER.match(text)
    if not found or "\n## How to load\n" not in text:
        return "\n".join([*header_lines(header), "", f"# {title}", "", note, "", loading])
    old = yaml.safe_load(found[1]) or {}
    header = {**old, **header, "tags": [tag for tag in old.get("tags", []) if tag != "lora"]}
    if "base_model" in header:
        header["base_model_relation"] = "finetune"
    body = text[found.end() :]
    body = re.sub(r"^# [^\n]*$", lambda _: f"# {title}\n\n{note}", body, count=1, flags=re.MULTILINE)
    body = body.replace("\nA LoRA adapter of ", "\nIt was trained as a LoRA adapter of ", 1)
    section = re.compile(_SECTION.format(heading="How to load"), re.DOTALL | re.MULTILINE)
    body = section.sub(lambda _: loading + "\n", body, count=1)
    return "\n".join(header_lines(header)) + "\n" + body
