"""Reading what the evaluation command wrote; the arguments and the model that its tests share."""

import json

SHORT = ("--benchmarks", "svamp", "--limit", 3, "--max_new_tokens", 8, "--batch_size", 2)


GSM8K = ("--benchmarks", "gsm8k", "--limit", 4, "--no_entropy")


def read_rows(folder):
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def read_scores(folder):
    return json.loads((folder / "scores.json").read_text())


def message_of(err):
    """The one message, as interfaces.md bounds it."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert len(lines[0]) <= 900
    assert "Traceback" not in err
    return lines[0]


class ScriptedModel:
    """lm-eval's interface, answers by question: a tuple of texts for the program and the reasoning prompt."""

    max_length = 4096

    def __init__(self, answers):
        self.answers, self.asked, self.stop_at = answers, [], None

    def generate_until(self, requests, disable_tqdm=False):
        if self.stop_at is not None and len(self.asked) >= self.stop_at:
            raise KeyboardInterrupt
        prompts = [request.args[0] for request in requests]
        self.asked += prompts
        return [self.answers[text] for text in prompts]
