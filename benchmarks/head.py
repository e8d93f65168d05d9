"""The LM head alone, through the trainer: time and peak memory against what one would use instead.

    python benchmarks/head.py --steps 0 --output benchmarks/results/head_cpu.json

A one-layer Llama is trained on random tokens, a fifth of them digits, one fresh process a contender and a
run. The head is the contender minus the backbone alone, both medians: for memory, what the head adds to the
peak of the backbone's step. The input embeddings are frozen, so that their gradient, as large as the head's,
hides nothing of the head's memory. `--steps 0` times one step, the first, which takes many seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from contenders import FullLogits, Liger
from datasets import Dataset
from measure import Stopwatch, command, environment, interleave, run_fresh, spread, time_trainer
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from numsft import NumberVocab, NumSFTConfig, NumSFTTrainer
from numsft.numerals import IGNORED


class BackboneTrainer(SFTTrainer):
    """Forward and backward of the backbone, under a loss that costs nothing."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], **kwargs: Any) -> Tensor:
        """Return the mean of the last hidden states."""
        inputs.pop("labels")
        return model.base_model(**inputs, use_cache=False).last_hidden_state.float().mean()


class FullLogitsTrainer(FullLogits, SFTTrainer):
    """Full logits, and the number loss by autograd on top."""


class LigerTrainer(Liger, SFTTrainer):
    """Liger's fused linear cross-entropy."""


TRAINERS: dict[str, tuple[type[SFTTrainer], dict[str, Any], bool]] = {
    "backbone": (BackboneTrainer, {}, False),
    "numsft_ce_del": (NumSFTTrainer, {"number_loss": "del"}, True),
    "numsft_ce": (NumSFTTrainer, {"number_loss": "none"}, True),
    "trl_ce": (SFTTrainer, {}, True),
    "full_ce_del": (FullLogitsTrainer, {}, True),
    "liger_ce": (LigerTrainer, {}, True),
    "numsft_ce_del_frozen": (NumSFTTrainer, {"number_loss": "del"}, False),
    "numsft_ce_frozen": (NumSFTTrainer, {"number_loss": "none"}, False),
    "trl_ce_frozen": (SFTTrainer, {}, False),
}
"""Name -> trainer, settings beside the common ones, whether the head is trained."""

PRODUCTS = {"products": True, "products_frozen": False}
"""Bare matrix products: logits, gradient of the hidden states and, with a trained head, of the weight."""

BOUNDS = {
    "memory numsft CE+DEL / full logits": 0.10,
    "time numsft CE / TRL CE": 0.75,
    "time numsft CE / bare products": 1.15,
    "time numsft CE / bare products, frozen": 1.15,
    "time DEL on / off": 1.03,
    "time DEL on / off, frozen": 1.03,
    "memory DEL on / off": 1.02,
    "memory DEL on / off, frozen": 1.02,
}
"""What each ratio must not exceed."""


CLASSES = (10, 110, 1110)
"""Number tokens that a vocabulary may have: those of up to one, two and three digits."""


def digit_tokenizer(classes: int = 10) -> PreTrainedTokenizerFast:
    """A tokenizer of single characters: digits, letters and an end; more classes add 00..99, 000..999."""
    vocab = {"<unk>": 0, "<end>": 1}
    numbers = [f"{number:0{digits}}" for digits in (1, 2, 3) for number in range(10**digits)]
    for text in [*numbers[:classes], *"abcdefghijklmnopqrstuvwxyz+-=., "]:
        vocab[text] = len(vocab)
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    longest = len(str(classes)) - 1
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(rf"\d{{1,{longest}}}|[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="<end>", pad_token="<end>"
    )


def random_rows(args: argparse.Namespace, tokenizer: PreTrainedTokenizerFast, steps: int) -> Dataset:
    """Rows of random tokens, one longer than the positions that they train; a prompt is not trained."""
    generator = torch.Generator().manual_seed(args.seed)
    shape = (steps * args.rows, args.tokens // args.rows + 1)
    text = torch.randint(len(tokenizer), args.vocab, shape, generator=generator)
    digit_ids = NumberVocab.from_tokenizer(tokenizer).token_ids
    digits = digit_ids[torch.randint(len(digit_ids), shape, generator=generator)]
    ids = torch.where(torch.rand(shape, generator=generator) < args.digit_share, digits, text)
    labels = ids.clone()
    labels[:, : 1 + trained_from(args)] = IGNORED
    return Dataset.from_dict({"input_ids": ids.tolist(), "labels": labels.tolist()})


def trained_from(args: argparse.Namespace) -> int:
    """Return how many positions at the start of each row have no label."""
    return int(args.prompt_share * (args.tokens // args.rows))


def one_layer_llama(args: argparse.Namespace, trained_head: bool) -> LlamaForCausalLM:
    """A Llama of one layer, its head untied and its input embeddings frozen."""
    torch.manual_seed(args.seed)
    head_size = 64 if args.hidden % 64 == 0 else args.hidden // 4
    heads = args.hidden // head_size
    config = LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=2 * args.hidden,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=heads // 7 if heads % 7 == 0 else heads,
        max_position_embeddings=args.tokens + 1,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=1,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, args.dtype))
    model.get_input_embeddings().requires_grad_(False)
    model.lm_head.requires_grad_(trained_head)
    return model


def run_trainer(args: argparse.Namespace, name: str) -> Stopwatch:
    """Train `1 + args.steps` steps of contender `name` and return the watch over them."""
    kind, settings, trained_head = TRAINERS[name]
    config = NumSFTConfig if kind is NumSFTTrainer else SFTConfig
    tokenizer = digit_tokenizer(args.classes)
    steps = 1 + args.steps
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=one_layer_llama(args, trained_head),
            args=config(
                output_dir=folder,
                per_device_train_batch_size=args.rows,
                max_steps=steps,
                max_length=None,
                optim="sgd",
                learning_rate=1e-3,
                max_grad_norm=0.0,
                logging_steps=1000,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                gradient_checkpointing=False,
                activation_checkpointing=False,
                bf16=False,
                use_cpu=args.device == "cpu",
                seed=args.seed,
                **settings,
            ),
            train_dataset=random_rows(args, tokenizer, steps),
            processing_class=tokenizer,
        )
        return time_trainer(trainer)


def run_products(args: argparse.Namespace, trained_head: bool) -> Stopwatch:
    """Multiply matrices of the head's shapes, into memory that is there already."""
    device = torch.device(args.device)
    settings: dict[str, Any] = {"dtype": getattr(torch, args.dtype), "device": device}
    positions = args.rows * (args.tokens // args.rows - trained_from(args))
    hidden = torch.randn(positions, args.hidden, **settings)
    weight = torch.randn(args.vocab, args.hidden, **settings)
    # Written to, since the pages of memory that is only asked for come with the first write.
    logits = torch.ones(positions, args.vocab, **settings)
    grad_hidden, grad_weight = torch.ones_like(hidden), torch.ones_like(weight)
    watch = Stopwatch(device)
    for _ in range(1 + args.steps):
        watch.start()
        torch.mm(hidden, weight.T, out=logits)
        torch.mm(logits, weight, out=grad_hidden)
        if trained_head:
            torch.mm(logits.T, hidden, out=grad_weight)
        watch.stop()
    return watch


def ratios(figures: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return every ratio whose contenders were run: of the medians, and its spread over the rounds."""

    def head(name: str, key: str) -> list[float]:
        """Median first, then each round; the backbone taken off all but the bare products."""
        values = [figure[key] for figure in figures[name]]
        backbone = [figure[key] for figure in figures["backbone"]]
        if name in PRODUCTS:
            backbone = [0.0] * len(values)
        rounds = [value - base for value, base in zip(values, backbone, strict=True)]
        return [spread(values)["median"] - spread(backbone)["median"], *rounds]

    wanted = {
        "memory numsft CE+DEL / full logits": ("peak_mib", "numsft_ce_del", "full_ce_del"),
        "time numsft CE / TRL CE": ("seconds", "numsft_ce", "trl_ce"),
        "time numsft CE / bare products": ("seconds", "numsft_ce", "products"),
        "time numsft CE / bare products, frozen": ("seconds", "numsft_ce_frozen", "products_frozen"),
        "time DEL on / off": ("seconds", "numsft_ce_del", "numsft_ce"),
        "time DEL on / off, frozen": ("seconds", "numsft_ce_del_frozen", "numsft_ce_frozen"),
        "memory DEL on / off": ("peak_mib", "numsft_ce_del", "numsft_ce"),
        "memory DEL on / off, frozen": ("peak_mib", "numsft_ce_del_frozen", "numsft_ce_frozen"),
        "time numsft CE / TRL CE, frozen": ("seconds", "numsft_ce_frozen", "trl_ce_frozen"),
        "memory numsft CE / TRL CE": ("peak_mib", "numsft_ce", "trl_ce"),
        "memory numsft CE / TRL CE, frozen": ("peak_mib", "numsft_ce_frozen", "trl_ce_frozen"),
        "time numsft CE+DEL / full logits": ("seconds", "numsft_ce_del", "full_ce_del"),
        "time numsft CE / Liger CE": ("seconds", "numsft_ce", "liger_ce"),
        "memory numsft CE / Liger CE": ("peak_mib", "numsft_ce", "liger_ce"),
    }
    found = {}
    for label, (key, ours, theirs) in wanted.items():
        if {ours, theirs, "backbone"} <= figures.keys():
            ratio, *by_round = (a / b for a, b in zip(head(ours, key), head(theirs, key), strict=True))
            found[label] = {"ratio": ratio, "min": min(by_round), "max": max(by_round)}
            if label in BOUNDS:
                found[label]["bound"] = BOUNDS[label]
    return found


def print_report(medians: dict[str, dict[str, Any]], found: dict[str, dict[str, float]]) -> None:
    """Print each contender's medians and the ratios beside their bounds."""
    print(f"\n{'contender':22} {'step s':>8} {'min - max':>17} {'head s':>8} {'peak MiB':>9} {'head MiB':>9}")
    for name, entry in medians.items():
        seconds, peak = entry["seconds"], entry["peak_mib"]
        span = f"{seconds['min']:.2f} - {seconds['max']:.2f}"
        print(
            f"{name:22} {seconds['median']:8.2f} {span:>17} {entry['head_seconds']:8.2f} "
            f"{peak['median']:9.0f} {entry['head_mib']:9.0f}"
        )
    print(f"\n{'ratio of the heads':42} {'ratio':>7} {'min - max of rounds':>20} {'bound':>7}")
    for label, entry in found.items():
        bound = entry.get("bound")
        verdict = "" if bound is None else f"{bound:7.2f} {'holds' if entry['ratio'] <= bound else 'MISSED'}"
        print(f"{label:42} {entry['ratio']:7.3f} {entry['min']:9.3f} - {entry['max']:.3f}   {verdict}")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    on = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds, each contender once a round")
    parser.add_argument(
        "--steps", type=int, default=1, help="timed steps a process, after the first; 0 times that one"
    )
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders to run, beside the backbone")
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--classes", type=int, default=10, choices=CLASSES, help="number tokens")
    parser.add_argument("--tokens", type=int, default=4096, help="positions a step")
    parser.add_argument("--rows", type=int, default=4, help="rows that the positions stand in")
    parser.add_argument("--digit-share", type=float, default=0.2, help="share of the labels that are digits")
    parser.add_argument("--prompt-share", type=float, default=0.0, help="share of a row without labels")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default=on, choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="torch threads on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--contender", choices=[*TRAINERS, *PRODUCTS], help="run only this one, in this process"
    )
    parser.add_argument("--json", type=Path, help="where --contender writes its figures")
    return parser.parse_args(argv)


def summary(figures: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Return each contender's medians and spread, and its head: the medians less the backbone's."""
    medians: dict[str, dict[str, Any]] = {
        name: {key: spread([run[key] for run in runs]) for key in ("seconds", "cpu_seconds", "peak_mib")}
        for name, runs in figures.items()
    }
    for name, entry in medians.items():
        for key, head in (("seconds", "head_seconds"), ("peak_mib", "head_mib")):
            base = 0.0 if name in PRODUCTS else medians["backbone"][key]["median"]
            entry[head] = entry[key]["median"] - base
    return medians


def main() -> None:
    """Measure one contender in this process, or all of them in processes of their own."""
    args = parse()
    device = torch.device(args.device)
    if args.contender:
        torch.set_num_threads(args.threads)
        name = args.contender
        watch = run_products(args, PRODUCTS[name]) if name in PRODUCTS else run_trainer(args, name)
        if args.json:
            args.json.write_text(json.dumps(watch.result()))
        else:
            print(json.dumps(watch.steps))
        return

    names = [name for name in (*TRAINERS, *PRODUCTS) if args.device == "cuda" or name != "liger_ce"]
    if args.only:
        names = [name for name in names if name in (*args.only, "backbone")]
    keys = "vocab hidden classes tokens rows digit_share prompt_share dtype device threads seed steps"
    setup = {key: getattr(args, key) for key in keys.split()}
    options = [f"--{key.replace('_', '-')}={value}" for key, value in setup.items()]
    # Written after every round, so that a measurement that is cut short is not lost.
    for figures in interleave(
        names, args.runs, lambda name: run_fresh(__file__, [f"--contender={name}", *options])
    ):
        medians = summary(figures)
        found = ratios(figures)
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            result = {
                "command": command(),
                "setup": setup | {"runs": len(figures[names[0]])},
                "environment": environment(device, args.threads),
                "medians": medians,
                "ratios": found,
                "runs": figures,
            }
            args.output.write_text(json.dumps(result, indent=2) + "\n")
    print_report(medians, found)


if __name__ == "__main__":
    main()
