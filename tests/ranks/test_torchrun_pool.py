"""Ranks behind a launcher: fed, named when they fail, replaced; and what is said when a process of the launch itself dies."""

from __future__ import annotations

import launch_programs
import pytest
from test_plan import backend

from conformance.children import ChildProcesses
from conformance.errors import OptionError
from conformance.ranks.launch import Launch, launch_of
from conformance.ranks.plan import plan_ranks

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "WORLD_SIZE": "16",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


def in_child(children: ChildProcesses, program: str) -> object:
    return children.run(
        f"launch_programs:{program}", backend={}, environment={}, fresh_interpreter=False, timeout=120, arguments={}
    )


def test_a_launch_from_start_to_end(children: ChildProcesses) -> None:
    found = in_child(children, launch_programs.a_whole_launch.__name__)
    assert isinstance(found, dict)
    assert found["sums"] == [[3 * value + 3] * 3 for value in range(5)]
    assert found["same ranks"]
    for how, end in (("raises", "raised"), ("is killed", "died"), ("stalls", "stalled")):
        assert found[how][:3] == [1, end, "the second all_reduce"]
        assert "rank 1 speaks" in found[how][3]
        assert found[f"after it {how}"] == [6, 6, 6]
    assert "stall_here" in found["stalls, stack"]
    assert (found["interrupted"], found["after it was interrupted"]) == ("by a timer", [6, 6, 6])
    assert found["lost before"] == ""
    assert found["ends"] == ["value", "value", "died"]
    assert found["lost"] == "the process of rank 2 is gone, and torchrun restarts none"
    assert found["ends again"] == [["died", found["lost"]]] * 3
    assert found["exits"] == ["status 5", "signal 9"]
    assert found["ranks still there"] == []


def test_followers_end_when_rank_0_is_gone(children: ChildProcesses) -> None:
    assert in_child(children, launch_programs.rank_0_goes_away.__name__) == ["status 1", "status 1"]


def test_a_process_that_does_not_answer_is_not_waited_for(children: ChildProcesses) -> None:
    said = in_child(children, launch_programs.a_follower_is_stopped.__name__)
    assert said == "the process of rank 1 is gone or does not answer, and torchrun restarts none"


def test_torchruns_signal_is_a_reason_not_an_end(children: ChildProcesses) -> None:
    said = in_child(children, launch_programs.asked_to_end.__name__)
    assert said == "torchrun ended this launch, since one of its processes died or somebody ended it; it restarts none"


def test_a_process_of_torchrun_is_known_by_its_variables() -> None:
    assert launch_of(TORCHRUN) == Launch(3, 16, 2, "node0")
    for name in ("TORCHELASTIC_RUN_ID", "RANK", "MASTER_ADDR"):
        assert launch_of({**TORCHRUN, name: ""}) is None
    assert launch_of({}) is None


def test_the_number_of_ranks_is_torchruns() -> None:
    class Launched:
        launch = Launch(0, 4, 2, "node0")
        lost = ""

    launched: object = Launched()
    plan = plan_ranks(None, backend("musa", 2), launched)  # type: ignore[arg-type]
    assert (plan.count, plan.why_none, plan.spans_nodes, plan.lease_devices) == (4, "", True, True)
    with pytest.raises(OptionError, match="--ranks=3: torchrun started 4"):
        plan_ranks(3, backend("cpu", 1), launched)  # type: ignore[arg-type]
