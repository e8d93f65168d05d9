"""Merging an adapter into its base: a whole model that gives the adapter's logits, checked from the disk."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numsft.errors import RunError, UserError
from numsft.hub import text
from numsft.models import find_model, load_adapter_or_model, load_model, load_tokenizer
from numsft.recipe_yaml import plain, read_mapping

logger = logging.getLogger(__name__)

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Largest difference of a logit from the adapter's, as a share of the largest logit. Merging changes the
order of additions, and in 16 bits rounds each sum of weight and update once."""
_PROBE = 32


@dataclass(frozen=True)
class MergeReport:
    """What a merge gave.

    Attributes:
        folder: Of the merged model.
        dtype: Of its weights, the base's.
        difference: Of its logits, read back from the disk, from those of base and adapter: the largest, as a
            share of the largest logit.
        tied: Whether input and output embeddings are one.
    """

    folder: Path
    dtype: str
    difference: float
    tied: bool


def merge_adapter(adapter: str | Path, output_dir: str | Path, *, replace: bool = False) -> MergeReport:
    """Merge an adapter into its base and save the model with tokenizer and card in `output_dir`.

    The base is the one that `resolved.yaml` beside the adapter names, else that of `adapter_config.json`, in
    the precision of its own checkpoint. The saved model is loaded again and its logits compared, once with
    the model as it was saved (equal) and once with the adapter on its base; only then does `output_dir`
    appear.

    Args:
        adapter: Folder of a PEFT adapter, also of a checkpoint.
        output_dir: A folder that is not there yet, or empty.
        replace: Whether an `output_dir` with files in it is replaced, as by a run that makes it anew.

    Raises:
        UserError: If `adapter` is no adapter that can be merged, its base cannot be loaded, or `output_dir`
            has files in it.
        RunError: If the merged model does not give the adapter's logits, or holds values that are not finite.
    """
    adapter, output_dir = Path(adapter), Path(output_dir)
    _check(adapter, output_dir, replace)
    source = find_model(str(adapter))
    options = _options(adapter)
    model: Any = load_adapter_or_model(str(adapter), **options)
    if not hasattr(model.base_model, "merge_and_unload"):
        kind = model.active_peft_config.peft_type.value
        raise UserError(f"{adapter} is a {kind} adapter, which has no weights to merge: load it with PEFT")
    if getattr(model.get_base_model(), "is_quantized", False):
        raise UserError(
            f"the base {source.base} is quantised, so a merge would round its weights: set "
            "base_model_name_or_path in adapter_config.json to the checkpoint it was made from"
        )
    tokenizer = load_tokenizer(str(adapter), **options)
    ids = _probe(model)
    wanted = _logits(model, ids)
    merged = _merged(model, adapter)
    saved = _logits(merged, ids)
    dtype, tied = merged.dtype, bool(merged.config.get_text_config().tie_word_embeddings)

    partial = output_dir.with_name(f".{output_dir.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        merged.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        del model, merged
        reloaded = load_model(str(partial), **options)
        read = _logits(reloaded, ids)
        difference = _difference(read, wanted)
        same_dtype = reloaded.dtype == dtype
        del reloaded
        _accept(read, saved, difference, dtype, same_dtype)
        card = adapter / "README.md"
        base = _name_of_base(adapter) or source.base
        old = card.read_text(encoding="utf-8") if card.is_file() else ""
        (partial / "README.md").write_text(text.merged(old, str(output_dir), base), encoding="utf-8")
        if output_dir.exists():
            shutil.rmtree(output_dir)
        partial.rename(output_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return MergeReport(output_dir, str(dtype).removeprefix("torch."), difference, tied)


def _check(adapter: Path, output_dir: Path, replace: bool) -> None:
    if not adapter.is_dir():
        raise UserError(f"{adapter} is not a folder: name the folder of an adapter")
    if not (adapter / "adapter_config.json").is_file():
        raise UserError(
            f"{adapter} is not an adapter, since it has no adapter_config.json: name the folder that "
            "training wrote with use_peft; a whole model needs no merge"
        )
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(f"output_dir {output_dir} is a file: name a folder")
    if output_dir.resolve() == adapter.resolve():
        raise UserError(f"output_dir {output_dir} is the adapter's own folder: name another")
    if not replace and output_dir.exists() and any(output_dir.iterdir()):
        raise UserError(f"output_dir {output_dir} is not empty: name a new folder")


def _options(adapter: Path) -> dict[str, Any]:
    """What else the recipe says of loading the base: its revision, and whether its code is trusted."""
    recipes = [adapter / "resolved.yaml", adapter.resolve().parent / "resolved.yaml"]
    recipe = next((path for path in recipes if path.is_file()), None)
    entries = read_mapping(recipe) if recipe else {}
    revision, trusted = (plain(entries.get(key)) for key in ("model_revision", "trust_remote_code"))
    options: dict[str, Any] = {"revision": str(revision)} if revision not in (None, "main") else {}
    return options | ({"trust_remote_code": True} if trusted is True else {})


def _name_of_base(adapter: Path) -> str | None:
    """The base as the adapter names it: for a GGUF base the Hub id that its file stands for."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    name = config.get("base_model_name_or_path")
    return name if isinstance(name, str) and name else None


def _merged(model: Any, adapter: Path) -> Any:
    """Return the base with the adapter in its weights, all of them in the base's precision."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    base = model.get_base_model()
    was_tied = base.config.get_text_config().tie_word_embeddings
    _untie(base)
    try:
        for module in model.modules():
            if isinstance(module, ModulesToSaveWrapper):
                module.modules_to_save.to(next(module.original_module.parameters()).dtype)
            elif isinstance(module, BaseTunerLayer) and hasattr(module, "merge"):
                _merge_layer(module)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="(Already following|All) adapters (were|are already) merged"
            )
            warnings.filterwarnings("ignore", message="Input and output embeddings are no longer tied")
            warnings.filterwarnings("ignore", message="Model with `tie_word_embeddings=True`")
            merged = model.merge_and_unload(safe_merge=True)
    except ValueError as error:  # safe_merge's word for weights that are not finite
        raise RunError(f"{adapter} cannot be merged: {error}") from error
    inner, outer = merged.get_input_embeddings(), merged.get_output_embeddings()
    if outer is not None:
        tied = was_tied and torch.equal(inner.weight, outer.weight)
        if tied:
            outer.weight = inner.weight
        merged.config.get_text_config().tie_word_embeddings = merged.config.tie_word_embeddings = tied
    return merged.eval()


def _merge_layer(layer: Any) -> None:
    """Merge one layer so that each of its weights is rounded once."""
    base = layer.get_base_layer()
    dtype = base.weight.dtype
    if dtype in (torch.bfloat16, torch.float16):
        layer.float()
    layer.merge(safe_merge=True)
    base.to(dtype)


def _untie(base: Any) -> None:
    """Give the head a weight of its own where an adapter sits on one of two tied embeddings.

    A merge adds to the weight in place, so it would change both (peft#2018).
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    inner, outer = base.get_input_embeddings(), base.get_output_embeddings()
    if outer is None or inner.weight is not outer.weight:
        return
    if isinstance(inner, BaseTunerLayer) or isinstance(outer, BaseTunerLayer):
        holder = outer.get_base_layer() if isinstance(outer, BaseTunerLayer) else outer
        holder.weight = torch.nn.Parameter(outer.weight.detach().clone(), requires_grad=False)


def _probe(model: Any) -> Tensor:
    """Token ids spread over the vocabulary, `[1, 32]` at most."""
    rows = model.get_base_model().get_input_embeddings().weight.shape[0]
    return torch.linspace(0, rows - 1, min(_PROBE, rows)).long()[None]


def _logits(model: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids.to(model.device), use_cache=False).logits
    return logits.float()


def _difference(logits: Tensor, wanted: Tensor) -> float:
    if logits.shape != wanted.shape:
        return float("inf")
    return float((logits - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))


def _accept(read: Tensor, saved: Tensor, difference: float, dtype: torch.dtype, same_dtype: bool) -> None:
    if not same_dtype or not torch.equal(read, saved):
        raise RunError(
            f"The merged model does not come back from the disk as it was saved (logits differ by "
            f"{_difference(read, saved):.2g} of the largest): nothing is kept; please report it with the "
            "model's name."
        )
    if not difference <= _TOLERANCE.get(dtype, 5e-2):
        raise RunError(
            f"The merged model's logits differ from the adapter's by {difference:.2g} of the largest, more "
            f"than {_TOLERANCE.get(dtype, 5e-2):g}: nothing is kept; load the adapter with PEFT instead."
        )
