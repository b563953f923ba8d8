"""Run seeds: ``python -m tests.simulation --seeds 1000 [--start 1]``, or one: ``--seed 17``."""

import argparse
import sys
import time

from tests.simulation.run import run


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the seeds, and print the story of each that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print its story")
    parser.add_argument("--seeds", type=int, default=200, help="how many (200)")
    parser.add_argument("--start", type=int, default=1, help="the first (1)")
    args = parser.parse_args()
    if args.seed is not None:
        result = run(args.seed)
        say("\n".join([*result.story, *result.failures]))
        return bool(result.failures)
    failed, began = 0, time.perf_counter()
    for seed in range(args.start, args.start + args.seeds):
        result = run(seed)
        if result.failures:
            failed += 1
            say(f"seed {seed}: {len(result.failures)} failures: {result.failures[0][:300]}")
    say(f"{args.seeds} seeds, {failed} failed, {time.perf_counter() - began:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
