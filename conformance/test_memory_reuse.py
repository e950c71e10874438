"""STR-12: freed memory is not used again while work that was issued before the free can still touch it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.checking import clause, unsupported
from conformance.gating import denial_evidence
from conformance.programs.reuse_drafts import TYPICAL, ReuseDraft, reuse_drafts
from conformance.programs.stream_drafts import STREAM_WAITS, Focus, StreamDraft, stream_drafts
from conformance.programs.stream_program import ScheduleChoice, StreamProgram
from conformance.stream_runs import StreamRuns

_SCHEDULES = ("lazy", "seeded", "directed")
_schedules = st.sampled_from(_SCHEDULES)
_seeds = st.just(0) | st.integers(1, 1 << 16)  # from seed 0, `directed` reverses every pair that it can


def _run(stream_runs: StreamRuns, program: StreamProgram, schedule: str, seed: int) -> None:
    """Run a program on real devices, or on a simulated machine in an order that puts work off."""
    backend = stream_runs.backend
    if not method(backend.accelerator, "supports")("events"):
        unsupported(f"events: {denial_evidence(backend, 'events')}")
    if not backend.is_fake:
        stream_runs.run(program)
        return
    stream_runs.run(replace(program, schedule=ScheduleChoice(backend.given_schedule or schedule, seed)))


@clause("STR-12")
def test_typical_buffers_do_not_take_memory_that_is_in_use(stream_runs: StreamRuns) -> None:
    for draft in TYPICAL:
        for schedule in _SCHEDULES:
            for seed in range(2):
                _run(stream_runs, draft.program(1), schedule, seed)


@clause("STR-12", examples=0.4)
@given(draft=reuse_drafts, schedule=_schedules, seed=_seeds)
def test_new_buffers_do_not_take_memory_that_is_in_use(
    stream_runs: StreamRuns, draft: ReuseDraft, schedule: str, seed: int
) -> None:
    _run(stream_runs, draft.program(stream_runs.backend.device_count), schedule, seed)


_FREEING = Focus(kinds=(*("kernel",) * 4, *("free",) * 3, *("record_stream",) * 2, "copy", "host_read"), waits=STREAM_WAITS)


@clause("STR-12", examples=0.3)
@given(draft=stream_drafts(_FREEING), schedule=_schedules, seed=_seeds)
def test_programs_that_free_give_what_their_order_implies(
    stream_runs: StreamRuns, draft: StreamDraft, schedule: str, seed: int
) -> None:
    _run(stream_runs, stream_runs.program(draft), schedule, seed)
