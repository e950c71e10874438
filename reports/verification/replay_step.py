"""The step that runs the suite again.

For: adding a replay's answer to a verification. Not for: the run (`reports.replay`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reports.reading import read_report
from reports.rendering import REPORT
from reports.replay import Replay, ReplayOptions, Runner, replay
from reports.verification.findings import Finding, State, StepResult, Verdict, Verification

_SHOWN = 8  # clauses
REPLAYED = "A replay shows that such a device gives these outcomes here and today. It does not show on which device the vendor ran."


def replay_step(verification: Verification, path: Path, options: ReplayOptions, run: Runner | None = None) -> Verification:
    """`verification` with the replay as its last step.

    Raises:
        ReplayError: the report cannot be replayed here.
    """
    result = replay(read_report(path).report, options, run)
    step = _step(result)
    fails = step.state is State.FAILS
    return dataclasses.replace(
        verification,
        verdict=Verdict.FAILS if fails else verification.verdict,
        steps=(*verification.steps, step),
        says=() if fails else (*verification.says, REPLAYED),
    )


def _step(result: Replay) -> StepResult:
    findings = tuple(
        Finding.about(
            "replay",
            f"{REPORT}/clauses/{each.clause}",
            f"reported {each.reported}, here {each.found}" + (f"; again: {each.replay}" if each.replay else ""),
        )
        for each in result.differences
    )
    said = f"With the seed {result.seed}: {result.agreed} clauses as reported, {len(findings)} otherwise."
    notes = [said, f"python -m conformance {' '.join(result.arguments)}"]
    state = State.FAILS if findings else State.HOLDS
    if result.without_verdict:
        named = ", ".join(result.without_verdict[:_SHOWN]) + (", …" if len(result.without_verdict) > _SHOWN else "")
        notes.append(
            f"{len(result.without_verdict)} clauses have a verdict in the report and none here, so nothing is said of them: {named}"
        )
        state = State.FAILS if findings else State.NOT_CHECKED
    return StepResult("replay", "The suite, run here, finds the same", state, findings, tuple(notes))
