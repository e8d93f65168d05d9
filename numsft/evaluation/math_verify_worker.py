"""The process behind `math_verify_column`: a JSON pair [answer, gold] a line in, a JSON bool a line out."""

import json
import logging
import resource
import sys

_MEMORY_BYTES = 4 * 2**30


def main() -> None:
    """Compares pairs until the input ends; time is bounded by the parent, which kills this process."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    from math_verify import parse, verify

    print("ready", flush=True)
    for line in sys.stdin:
        answer, gold = (f"${text}$" for text in json.loads(line))
        try:
            same = verify(
                parse(gold, parsing_timeout=None), parse(answer, parsing_timeout=None), timeout_seconds=None
            )
        except Exception:  # whatever sympy trips over, the pair is not shown to be equal
            same = False
        print(json.dumps(bool(same)), flush=True)


if __name__ == "__main__":
    main()
