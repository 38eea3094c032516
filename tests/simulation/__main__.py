"""Histories of seeds: `python -m tests.simulation --seed 7`, or `--seeds FIRST COUNT` of many.

One seed is one history, exactly repeatable with the same code. Exits with 1 if something is wrong.
"""

import argparse
import os
import sys
import time
from collections import Counter
from itertools import count

if os.environ.get("PYTHONHASHSEED") != "0":
    # The order of a set is a part of the history.
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

import pyarrow as pa

from tests.simulation.broken import BROKEN
from tests.simulation.histories import History, Start, history_of, prepared
from tests.simulation.world import patched


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="print the history of one seed")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "COUNT"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--broken", choices=BROKEN, help="remove a promise of the package")
    parser.add_argument("--until-wrong", action="store_true", help="stop at the first wrong seed")
    parser.add_argument("--disk", action="store_true", help="on a local disk, with power cuts")
    given = parser.parse_args()
    pa.set_cpu_count(1)
    start = prepared(is_disk=given.disk)
    with patched(BROKEN[given.broken]() if given.broken else []):
        if given.seed is not None:
            history = history_of(given.seed, start, traced=True)
            print(*history.trace, sep="\n")
            _print_wrong(history)
            return bool(history.wrong)
        return _many(start, *given.seeds, seconds=given.seconds, until_wrong=given.until_wrong)


def _many(start: Start, first: int, number: int, *, seconds: float, until_wrong: bool) -> int:
    began = time.monotonic()
    drawn = Counter[str]()
    wrong = seeds = calls = 0
    for seed in count(first) if number < 0 else range(first, first + number):
        if time.monotonic() - began > seconds:
            break
        history = history_of(seed, start)
        seeds += 1
        calls += history.calls
        drawn += history.drawn
        if history.wrong:
            wrong += 1
            _print_wrong(history)
            if until_wrong:
                break
    spent = time.monotonic() - began
    for kind, times in sorted(drawn.items()):
        print(f"{times:9,}  {kind}")
    print(
        f"{seeds:,} seeds from {first}, {calls:,} calls, {spent:.1f} s"
        f" ({1000 * spent / max(seeds, 1):.0f} ms each): {wrong} wrong"
    )
    return bool(wrong)


def _print_wrong(history: History) -> None:
    for text in history.wrong:
        print(f"seed {history.seed}: {text}")


if __name__ == "__main__":
    sys.exit(main())
