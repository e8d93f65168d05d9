"""The files behind the benchmarks: public repository, path, commit and sha256 of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["open", "math", "choice"]

_MAMMOTH = ("TIGER-AI-Lab/MAmmoTH2", "9c67cb137b87e3c2f68ab412c6731b1f47a51b55")
_GAIR = ("GAIR-NLP/math-evaluation-harness", "8e2c3ccc293610415629ae78e4f3805461e98452")
_GSM8K = ("openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's file.

    Attributes:
        name: As on the command line.
        path: In the data folder.
        repo: Public GitHub repository.
        repo_path: Path there.
        commit: Commit there.
        sha256: Of the file.
        rows: Questions in it.
        kind: `open` (a number), `math` (LaTeX) or `choice` (a letter).
    """

    name: str
    path: str
    repo: str
    repo_path: str
    commit: str
    sha256: str
    rows: int
    kind: Kind


def _file(
    name: str, path: str, source: tuple[str, str], repo_path: str, sha256: str, rows: int, kind: Kind
) -> Benchmark:
    return Benchmark(name, path, source[0], repo_path, source[1], sha256, rows, kind)


_FILES = (
    _file(
        "gsm8k",
        "gsm8k/test.jsonl",
        _GSM8K,
        "grade_school_math/data/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        1319,
        "open",
    ),
    _file(
        "math",
        "math/test.jsonl",
        _GAIR,
        "data/math/test.jsonl",
        "3371949f33dd702d04b43fddd7d53a028de0aaca0e76abb1b875a050297b3aa4",
        5000,
        "math",
    ),
    _file(
        "math500",
        "math/math500.jsonl",
        _GAIR,
        "data/math_oai/test.jsonl",
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        500,
        "math",
    ),
    _file(
        "svamp",
        "svamp/SVAMP.json",
        ("arkilpatel/SVAMP", "689d7ccac74b9983a2ac7cc3b264f441b99e7c53"),
        "SVAMP.json",
        "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
        1000,
        "open",
    ),
    _file(
        "simuleq",
        "simuleq/simuleq.json",
        _MAMMOTH,
        "math_eval/dataset/simuleq/simuleq.json",
        "2fdc97194c641c7c969866a2a25f01e6c6ae36b00391467d33e15a1a7d4e75e1",
        514,
        "open",
    ),
    _file(
        "aqua",
        "aqua/test.json",
        ("google-deepmind/AQuA", "26b64ed1f22208c6742f47df547dfd65088ec30d"),
        "test.json",
        "de41581881ef95c5588c44ddc701c77fd480839241dd422a0d181262af24520c",
        254,
        "choice",
    ),
    _file(
        "sat_math",
        "sat_math/sat.json",
        _MAMMOTH,
        "math_eval/dataset/sat/sat.json",
        "8e551d655828c4162e3f098c7c8fa560f8ba4bc7b6f24a9caa205f23bcd861d9",
        220,
        "choice",
    ),
    _file(
        "mmlu_math",
        "mmlu_math/mathematics.json",
        _MAMMOTH,
        "math_eval/dataset/mmlu/mathematics.json",
        "4d07b027d398890e5bc1bbee5ed568fd4b3ba9bb4539d076fe082107d0e9d8bf",
        974,
        "choice",
    ),
)
BENCHMARKS: dict[str, Benchmark] = {file.name: file for file in _FILES}
TRAIN: dict[str, Benchmark] = {
    "gsm8k": _file(
        "gsm8k",
        "gsm8k/train.jsonl",
        _GSM8K,
        "grade_school_math/data/train.jsonl",
        "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        7473,
        "open",
    )
}
