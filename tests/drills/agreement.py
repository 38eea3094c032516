"""Many random histories, of which status, step, plan and sensor must say the same: `python -m
tests.drills.agreement`.

The histories and the check are those of `tests/worlds/histories.py`. Ends with an error at the
first history of which two of them disagree.

Options: `--histories`, `--seed` (of the first thousand).
"""

import argparse
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.worlds.histories import check, histories

AT_A_TIME = 1_000


def check_many(number: int, first_seed: int) -> int:
    """Check so many histories, a thousand for each seed. Returns how many were checked."""
    checked = 0

    def checked_one(history):
        nonlocal checked
        check(history)
        checked += 1

    for batch, done in enumerate(range(0, number, AT_A_TIME)):
        many = settings(
            max_examples=min(AT_A_TIME, number - done),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seed(first_seed + batch)(many(given(histories())(checked_one)))()
        print(f"{checked:,} histories, seeds {first_seed}..{first_seed + batch}", flush=True)
    return checked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given_options = parser.parse_args()
    began = time.process_time()
    checked = check_many(given_options.histories, given_options.seed)
    took = time.process_time() - began
    print(f"{checked:,} histories without a difference, in {took:,.0f} s of a core")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
