"""Loading: a name on the command line or in a recipe becomes a model and its tokenizer.

A name is a Hub id, a local folder, `package:NAME` (a folder inside an installed package), a `.gguf` file or
the folder of a PEFT adapter. What cannot be loaded is a `UserError` in one sentence.
"""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from numsft.errors import UserError
from numsft.recipe_yaml import plain, read_mapping
from numsft.recipes import locate_model

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ATTENTION_CHOICES = ("auto", "eager", "sdpa", "flash_attention_2")
_LONGEST_REASON = 300
_LOADING_ERRORS: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, SafetensorError)
_GGUF_ERRORS: tuple[type[Exception], ...] = (struct.error, LookupError, ArithmeticError)


@dataclass(frozen=True)
class ModelSource:
    """Where a model's parts lie.

    Attributes:
        name: As the user wrote it.
        base: The base as written there or by the adapter: what `resolved.yaml` would say.
        path: Folder or Hub id of the base.
        gguf_file: Name of the GGUF file in that folder, None for a checkpoint of the usual form.
        adapter: Folder of the PEFT adapter, None for a plain model.
    """

    name: str
    base: str
    path: str
    gguf_file: str | None = None
    adapter: Path | None = None


def find_model(name: str, gguf_file: str | None = None) -> ModelSource:
    """Look a name up on this machine; nothing is loaded or downloaded.

    Where a local folder has no `config.json` but one `.gguf` file, that file is taken. The base of an adapter
    is looked up in the `resolved.yaml` beside it (for a checkpoint, in the folder above), which keeps
    `package:` and `gguf_file`, then in `adapter_config.json`.

    Args:
        name: Hub id, folder, `package:NAME`, `.gguf` file or adapter folder.
        gguf_file: Name of the GGUF file in the (base) model's folder.

    Raises:
        UserError: For a path, package or GGUF file that is not there.
    """
    folder = Path(locate_model(name))
    if not (folder / "adapter_config.json").is_file():
        return _find_base(name, gguf_file)
    base, base_gguf = _base_of_adapter(folder)
    if (Path(locate_model(base)) / "adapter_config.json").is_file():
        raise UserError(
            f"the base of adapter {name} is {base}, which is an adapter itself: merge that one first"
        )
    return replace(_find_base(base, gguf_file or base_gguf), name=name, adapter=folder)


def load_tokenizer(name: str, gguf_file: str | None = None, **options: Any) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model; for an adapter its own where it was saved with one, else the base's.

    Args:
        name: As for `find_model`.
        gguf_file: As for `find_model`.
        **options: Passed to `AutoTokenizer.from_pretrained`.

    Raises:
        UserError: If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    source = find_model(name, gguf_file)
    if source.adapter and (source.adapter / "tokenizer_config.json").is_file():
        path = str(source.adapter)
    else:
        path = source.path
        options |= _gguf_options(source)
    with _readable_errors(f"the tokenizer of {name}", path, *(_GGUF_ERRORS if source.gguf_file else ())):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **options)
    return tokenizer


def load_model(
    name: str,
    gguf_file: str | None = None,
    *,
    dtype: str | torch.dtype = "auto",
    attn_implementation: str | None = None,
    **options: Any,
) -> PreTrainedModel:
    """Return a causal language model (of an adapter folder, its base alone), in evaluation mode.

    A GGUF file is unpacked into an ordinary model: nothing of the quantisation stays in it or its config, so
    it trains and saves like any other.

    Args:
        name: As for `find_model`.
        gguf_file: As for `find_model`.
        dtype: `"auto"` (the checkpoint's own), a name such as `"bfloat16"`, or a dtype.
        attn_implementation: `"auto"` (`resolve_attention`), what transformers takes, or None, its default.
        **options: Passed to `AutoModelForCausalLM.from_pretrained`.

    Raises:
        UserError: If it cannot be loaded.
    """
    from transformers import AutoModelForCausalLM, GgufConfig

    source = find_model(name, gguf_file)
    options |= _gguf_options(source)
    if source.gguf_file:
        if options.get("quantization_config") is not None:
            raise UserError(
                f"{source.gguf_file} cannot be quantised once more while it is read: load {source.base} "
                "without load_in_4bit or load_in_8bit, or take the original checkpoint"
            )
        options["quantization_config"] = GgufConfig(dequantize=True)
    attention = resolve_attention(attn_implementation)
    # Left unset, transformers takes sdpa too, but falls back to eager for an architecture that lacks it.
    if attention is not None and (attn_implementation, attention) != ("auto", "sdpa"):
        options["attn_implementation"] = attention
    with _readable_errors(f"model {source.base}", source.path, *(_GGUF_ERRORS if source.gguf_file else ())):
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=dtype, **options)
    if source.gguf_file:
        # The file's metadata hold a title, which an adapter would give as the name of its base.
        model.name_or_path = model.config._name_or_path = source.base
    return model


def load_adapter_or_model(
    name: str,
    gguf_file: str | None = None,
    *,
    dtype: str | torch.dtype = "auto",
    attn_implementation: str | None = None,
    **options: Any,
) -> PreTrainedModel | PeftModel:
    """Return what `load_model` returns, for an adapter folder with the adapter on it (not merged, frozen).

    Args:
        name: As for `find_model`.
        gguf_file: As for `find_model`.
        dtype: As for `load_model`.
        attn_implementation: As for `load_model`.
        **options: Passed to `AutoModelForCausalLM.from_pretrained`.

    Raises:
        UserError: If base or adapter cannot be loaded.
    """
    source = find_model(name, gguf_file)
    model = load_model(name, gguf_file, dtype=dtype, attn_implementation=attn_implementation, **options)
    if source.adapter is None:
        return model
    from peft import PeftModel

    with _readable_errors(f"adapter {name} on {source.base}", str(source.adapter), RuntimeError, KeyError):
        return PeftModel.from_pretrained(model, str(source.adapter)).eval()


def resolve_attention(attn_implementation: str | None) -> str | None:
    """Return what `"auto"` means here; other values as they are.

    It is `"flash_attention_2"` where flash-attn can be imported and there is a GPU that it runs on (compute
    capability 8.0, Ampere, or later), else `"sdpa"`.

    Raises:
        UserError: If `"flash_attention_2"` is asked for where it is not installed or does not run.
    """
    if attn_implementation not in ("auto", "flash_attention_2"):
        return attn_implementation
    from transformers.utils.import_utils import is_flash_attn_2_available

    if attn_implementation == "flash_attention_2":
        if importlib.util.find_spec("flash_attn") is None:
            raise UserError(
                "attn_implementation is flash_attention_2 and the package flash-attn is not installed: "
                'run `pip install "numsft[gpu]"`, or set `attn_implementation: auto`'
            )
        if not is_flash_attn_2_available():
            raise UserError(
                "attn_implementation is flash_attention_2, which does not run here (no GPU, or too old a "
                "flash-attn): set `attn_implementation: auto`"
            )
        return attn_implementation
    if is_flash_attn_2_available() and torch.cuda.get_device_capability() >= (8, 0):
        return "flash_attention_2"
    return "sdpa"


def _find_base(name: str, gguf_file: str | None) -> ModelSource:
    path = Path(locate_model(name))
    if path.is_file() and path.suffix == ".gguf":
        return ModelSource(name, name, str(path.parent), path.name)
    if not path.is_dir():
        # A Hub id is NAME or OWNER/NAME; do not ask the Hub for what can only be a path.
        if path.exists() or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name):
            raise UserError(f"model {name} is no folder here and no Hub id (OWNER/NAME): correct the path")
        return ModelSource(name, name, name, gguf_file)
    present = sorted(file.name for file in path.glob("*.gguf"))
    if gguf_file is None and not (path / "config.json").is_file():
        if len(present) != 1:
            found = f"{len(present)} .gguf files ({', '.join(present[:5])})" if present else "no .gguf file"
            raise UserError(
                f"model folder {name} has no config.json, no adapter_config.json and {found}: "
                + ("name one with gguf_file" if present else "name a folder that holds a model")
            )
        gguf_file = present[0]
    if gguf_file is not None and not (path / gguf_file).is_file():
        raise UserError(
            f"gguf_file is {gguf_file!r}, which is not in {name}: it holds {', '.join(present[:5]) or 'none'}"
        )
    return ModelSource(name, name, str(path), gguf_file)


def _base_of_adapter(folder: Path) -> tuple[str, str | None]:
    """Return name and GGUF file of the base of the adapter in `folder`."""
    beside = [folder / "resolved.yaml"]
    if re.fullmatch(r"checkpoint-\d+", folder.resolve().name):
        beside.append(folder.resolve().parent / "resolved.yaml")
    for recipe in beside:
        if recipe.is_file():
            entries = {key: plain(value) for key, value in read_mapping(recipe).items()}
            if isinstance(base := entries.get("model_name_or_path"), str):
                gguf_file = entries.get("gguf_file")
                return base, gguf_file if isinstance(gguf_file, str) else None
    try:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))[
            "base_model_name_or_path"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise UserError(
            f"adapter {folder} does not say what it was trained on: set base_model_name_or_path in its "
            "adapter_config.json"
        )
    return base, None


def _gguf_options(source: ModelSource) -> dict[str, Any]:
    if source.gguf_file is None:
        return {}
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            f"{source.gguf_file} is a GGUF file and the package gguf is not installed: "
            'run `pip install "numsft[quickstart]"`'
        )
    return {"gguf_file": source.gguf_file}


@contextmanager
def _readable_errors(what: str, path: str, *more: type[Exception]) -> Iterator[None]:
    """Turn what the libraries raise for files they cannot load into one sentence."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if isinstance(error, UserError) or not isinstance(error, (*_LOADING_ERRORS, *more)):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        if len(reason) > _LONGEST_REASON:
            reason = reason[:_LONGEST_REASON] + " ..."
        advice = (
            "correct the files in that folder"
            if Path(path).exists()
            else "correct the name, or check the connection and the login to the Hub"
        )
        raise UserError(f"cannot load {what}: {reason.rstrip('.')}; {advice}") from error
