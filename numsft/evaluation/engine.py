"""Text from a model: lm-eval's `hf` and `vllm` models as engines, greedy, any base, adapter or GGUF file."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numsft.errors import UserError
from numsft.models import find_model, load_adapter_or_model, load_tokenizer

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from transformers import PreTrainedTokenizerBase

BACKENDS = ("hf", "vllm")
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
_INSTALL = 'pip install "numsft[eval]"'


@dataclass
class Engine:
    """A model that continues prompts.

    Attributes:
        lm: lm-eval's model.
        tokenizer: Its tokenizer.
        model: The transformers (or PEFT) model behind it, None where another program holds it (vLLM).
        window: Prompts to hand over at a time: enough for full batches, few enough to lose to a kill.
    """

    lm: LM
    tokenizer: PreTrainedTokenizerBase
    model: Any
    window: int

    def complete(self, prompts: Sequence[str], stop: Sequence[str], max_new_tokens: int) -> list[str]:
        """Continue every prompt greedily, up to a stop string (not in the result), the end, or the limit.

        Raises:
            UserError: If a prompt and `max_new_tokens` do not fit into the model's context.
        """
        from lm_eval.api.instance import Instance

        self.refuse_overlong(prompts, max_new_tokens)
        settings = {"until": list(stop), "max_gen_toks": max_new_tokens, "do_sample": False}
        requests = [
            Instance(request_type="generate_until", doc={}, arguments=(prompt, dict(settings)), idx=index)
            for index, prompt in enumerate(prompts)
        ]
        return list(self.lm.generate_until(requests, disable_tqdm=True))

    def refuse_overlong(self, prompts: Sequence[str], max_new_tokens: int) -> None:
        """Do nothing where the longest prompt and its answer fit into the model's context.

        Raises:
            UserError: If they do not.
        """
        context = getattr(self.lm, "max_length", None)
        longest = max(map(self.length, prompts), default=0)
        if context is not None and longest + max_new_tokens > context:
            raise UserError(
                f"a prompt of {longest} tokens and max_new_tokens {max_new_tokens} do not fit into the "
                f"model's context of {context}: lower --max_new_tokens"
            )

    def length(self, prompt: str) -> int:
        """Return how many tokens a prompt has."""
        return len(self.tokenizer(prompt)["input_ids"])


def load_engine(
    name: str,
    backend: str = "hf",
    *,
    gguf_file: str | None = None,
    dtype: str = "auto",
    batch_size: int = 16,
) -> Engine:
    """Load a model for generation.

    Args:
        name: A folder, a Hub id, `package:NAME`, a `.gguf` file or an adapter folder.
        backend: `"hf"` (transformers) or `"vllm"`.
        gguf_file: Name of the GGUF file in the (base) model's folder.
        dtype: `"auto"` (the checkpoint's own) or a name such as `"bfloat16"`.
        batch_size: Prompts at a time; vLLM batches by itself.

    Raises:
        UserError: For a backend or package that is not there, or a model that cannot be loaded.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend is {backend!r}; expected {' or '.join(BACKENDS)}")
    if importlib.util.find_spec("lm_eval") is None:
        raise UserError(f"generating needs the package lm-eval, which is not installed: run `{_INSTALL}`")
    if dtype not in DTYPES:
        raise UserError(f"dtype is {dtype!r}; expected one of {', '.join(DTYPES)}")
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; expected 1 or more")
    for noisy in ("lm_eval", "lm-eval"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    if backend == "vllm":
        return _load_vllm(name, gguf_file, dtype)
    return _load_hf(name, gguf_file, dtype, batch_size)


def _load_hf(name: str, gguf_file: str | None, dtype: str, batch_size: int) -> Engine:
    import torch
    from lm_eval.models.huggingface import HFLM

    tokenizer = load_tokenizer(name, gguf_file)
    model = load_adapter_or_model(name, gguf_file, dtype=dtype, attn_implementation="auto").eval()
    if torch.accelerator.is_available():
        model.to(torch.accelerator.current_accelerator())
    _decode_greedily(model)
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size, dtype=dtype)
    return Engine(lm, tokenizer, model, window=batch_size)


def _decode_greedily(model: Any) -> None:
    """Drop a checkpoint's sampling defaults: transformers warns of some and obeys a repetition penalty."""
    from transformers import GenerationConfig

    whole = [model, model.get_base_model()] if hasattr(model, "get_base_model") else [model]
    kept = ("bos_token_id", "eos_token_id", "pad_token_id")
    for part in whole:
        ids = {name: getattr(part.generation_config, name, None) for name in kept}
        part.generation_config = GenerationConfig(**ids)  # type: ignore[no-untyped-call]


def _load_vllm(name: str, gguf_file: str | None, dtype: str) -> Engine:
    if importlib.util.find_spec("vllm") is None:
        raise UserError("backend vllm needs the package vllm, which is not installed: run `pip install vllm`")
    from lm_eval.models.vllm_causallms import VLLM

    source = find_model(name, gguf_file)
    if source.gguf_file:
        raise UserError(
            f"backend vllm does not read {source.gguf_file} as we do: use --backend hf, or save the model "
            "with `python -m numsft.hub merge`"
        )
    adapter: dict[str, Any] = {}
    if source.adapter is not None:
        adapter = {"lora_local_path": str(source.adapter), "max_lora_rank": _lora_rank(source.adapter)}
    lm = VLLM(pretrained=source.path, dtype=dtype, batch_size="auto", **adapter)
    return Engine(lm, load_tokenizer(name), None, window=512)


def _lora_rank(folder: Any) -> int:
    """The rank of an adapter that vLLM can serve.

    Raises:
        UserError: For one that it would serve wrongly or not at all.
    """
    from peft import PeftConfig

    config = PeftConfig.from_pretrained(str(folder))
    whole = getattr(config, "modules_to_save", None)
    if str(config.peft_type).rsplit(".", 1)[-1] != "LORA" or whole or getattr(config, "use_dora", False):
        reason = f"modules_to_save {whole}" if whole else "not plain LoRA"
        raise UserError(
            f"backend vllm cannot serve the adapter {folder} ({reason}): merge it first with "
            f"`python -m numsft.hub merge {folder} --output_dir MERGED`"
        )
    return int(max([config.r, *(config.rank_pattern or {}).values()]))
