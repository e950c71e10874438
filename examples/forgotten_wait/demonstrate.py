"""What each schedule makes of the forgotten wait."""

from __future__ import annotations

import torch
from weight_sync import serve

import fakes
from fakes.errors import RaceError
from fakes.scheduling.policies import Policy, Recorded, Seeded
from fakes.scheduling.shrinking import described, shrink_schedule

SEEDS = 10


def main() -> None:
    """Print it."""
    machine = fakes.install("musa", devices=1)
    expected = serve("musa", forgets=False)

    def is_right(schedule: str | Policy, *, forgets: bool, seed: int = 0) -> bool:
        machine.reset(schedule=schedule, seed=seed, detect_races=False)
        return all(torch.equal(mine, its) for mine, its in zip(serve("musa", forgets=forgets), expected, strict=True))

    for forgets in (True, False):
        print("the wait is", "forgotten" if forgets else "there")
        for schedule in ("eager", "lazy", "directed"):
            print(f"  {schedule:9}", "right" if is_right(schedule, forgets=forgets) else "WRONG")
        wrong = [seed for seed in range(SEEDS) if not is_right("seeded", forgets=forgets, seed=seed)]
        print(f"  seeded    wrong for {len(wrong)} of {SEEDS} seeds{f', the first is {wrong[0]}' if wrong else ''}")

    machine.reset(schedule="eager", detect_races=True)
    try:
        serve("musa", forgets=True)
    except RaceError as error:
        print(f"\nthe race detector, on the eager schedule:\n{error}")

    seed = next(seed for seed in range(SEEDS) if not is_right("seeded", forgets=True, seed=seed))
    policy = Seeded(seed)
    is_right(policy, forgets=True)

    def fails(recorded: Recorded) -> bool:
        return not is_right(recorded, forgets=True)

    print(f"\nseed {seed} decides {len(policy.decisions)} times; enough to go wrong is:")
    print(described(shrink_schedule(fails, policy.decisions)))


if __name__ == "__main__":
    main()
