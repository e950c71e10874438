"""STR: whole programs of kernels, copies, events, waits and synchronizations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conformance.checking import clause
from conformance.programs.stream_drafts import Focus, StreamDraft, stream_drafts
from conformance.programs.stream_typical import waits_between_streams
from conformance.stream_runs import StreamRuns

SEEDS = st.integers(0, 1 << 16)
"""What a simulated machine draws its order from."""


@clause("STR-11")
def test_waits_of_busy_streams_and_waits_for_one_stream_twice_hold(stream_runs: StreamRuns) -> None:
    stream_runs.judge_typical(waits_between_streams())


@clause("STR-11", shrinks=False)
@given(draft=stream_drafts(), seed=SEEDS)
def test_a_race_free_program_gives_what_its_order_implies(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-11", examples=0.3, shrinks=False)
@given(draft=stream_drafts(Focus(racy=True)), seed=SEEDS)
def test_what_no_race_touches_is_determined_all_the_same(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)
