"""What the suite does with its options: each wrong one is one clear usage error, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from suite_runner import SuiteRun

Suite = Callable[..., SuiteRun]

_CPU = "--backend=cpu"


@pytest.mark.parametrize(
    ("arguments", "due"),
    [
        ([], "say which backend to test: --backend=fake-musa"),
        (["--backend=nosuch"], "--backend=nosuch: no backend has this name. Known names: cpu, cuda, fake-"),
        (["--backend=fake-nosuch"], "--backend=fake-nosuch: no backend has this name."),
        (["--backend=cpu:0"], "--backend=cpu:0: no backend has this name."),
        (["--backend=fake-musa", "--devices=0"], "--devices=0: expected a whole number of at least 1"),
        (["--backend=fake-musa", "--devices=-3"], "--devices=-3: expected a whole number of at least 1"),
        (["--backend=fake-musa", "--devices=many"], "--devices=many: expected a whole number of at least 1"),
        ([_CPU, "--tier=roof"], "--tier=roof: expected one of host, device, multi-device, multi-rank, multi-node"),
        ([_CPU, "--effort=huge"], "--effort=huge: expected one of quick, default, certify"),
        ([_CPU, "--hypothesis-seed=-5"], "--hypothesis-seed=-5: expected a whole number from 0 to 2**64 - 1"),
        ([_CPU, "--hypothesis-seed=random"], "--hypothesis-seed=random: expected a whole number from 0 to 2**64 - 1"),
        ([_CPU, f"--hypothesis-seed={1 << 64}"], "expected a whole number from 0 to 2**64 - 1"),
        ([_CPU, "--examples=0"], "--examples=0: expected a whole number of at least 1"),
        (["--backend=fake-musa", "--fault=vis-nothing"], "--fault=vis-nothing: no such fault; near names: "),
        ([_CPU, "--fault=anything"], "faults are for simulated machines"),
        (["--accelerator=nocolon"], "--accelerator=nocolon: expected package.module:attribute"),
        (["--accelerator=no_such_module:make"], "ModuleNotFoundError: No module named 'no_such_module'"),
        (["--accelerator=json:nothing"], "AttributeError: module 'json' has no attribute 'nothing'"),
        (["--accelerator=json:__name__"], "__name__ is of type str and cannot be called"),
        (["--accelerator=json:loads"], "missing a required argument: 's'; expected package.module:attribute of a factory"),
        (
            [_CPU, "--normalizer=json:dumps"],
            "too many positional arguments; expected package.module:attribute of a function(backend,",
        ),
        (["--accelerator=strange_accelerators:raises"], "the factory raised RuntimeError: no licence"),
        (["--accelerator=strange_accelerators:returns_none"], "the factory returned None"),
        (["--backend=musa", "--require-device"], "--require-device: no device: there is no torch.musa"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_usage_error(suite: Suite, arguments: list[str], due: str, tmp_path: Path) -> None:
    run = suite(*arguments, environment={"TMPDIR": str(tmp_path)})
    assert run.exit_code == pytest.ExitCode.USAGE_ERROR, run.output
    assert run.output.count(due) == 1, run.output
    assert "Traceback" not in run.output
    assert run.results == {}
    assert not list(tmp_path.iterdir())


def test_an_unknown_backend_is_told_the_three_ways(suite: Suite) -> None:
    output = suite("--backend=nosuch").output
    for way in ("a device type that PyTorch knows", "an entry point", "--accelerator=package.module:factory"):
        assert way in output


@pytest.mark.parametrize("target", ["no/such/folder/r.json", "/dev/null/r.json", "."])
def test_a_results_file_that_cannot_be_written_is_found_before_the_run(suite: Suite, target: str) -> None:
    run = suite(_CPU, f"--results={target}")
    assert run.exit_code == pytest.ExitCode.USAGE_ERROR
    assert f"--results={target}:" in run.output
    assert "test session starts" not in run.output


def test_an_earlier_results_file_survives_a_usage_error(suite: Suite, tmp_path: Path) -> None:
    earlier = tmp_path / "results.json"
    earlier.write_text("earlier")
    assert suite("--backend=nosuch", f"--results={earlier}").exit_code == pytest.ExitCode.USAGE_ERROR
    assert earlier.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [earlier]


@pytest.mark.parametrize(("backend", "reason"), [("musa", "torch_musa"), ("npu", "torch_npu"), ("cuda", "torch.version.cuda")])
def test_without_a_device_the_host_tier_runs_and_certifies_nothing(suite: Suite, backend: str, reason: str) -> None:
    run = suite(f"--backend={backend}", "--effort=quick")
    assert run.exit_code == 0, run.output
    outcomes = run.outcomes()
    assert outcomes["VIS-1"] == "pass"
    assert outcomes["DEV-1"] == "not-run"
    assert "This certifies nothing." in run.output
    assert reason in run.results["run"]["no_device_reason"]


def test_the_real_cpu_passes_what_it_has_and_lacks_the_rest_with_evidence(suite: Suite) -> None:
    run = suite(_CPU, "--effort=quick")
    assert run.exit_code == 0, run.output
    clauses = {clause["id"]: clause for clause in run.results["clauses"]}
    assert clauses["DEV-1"]["outcome"] == "pass"
    unsupported = [clause for clause in clauses.values() if clause["outcome"] == "unsupported"]
    assert unsupported
    for clause in unsupported:
        assert all(check["text"] for check in clause["checks"] if check["outcome"] == "unsupported")


def test_tiers_above_the_chosen_one_are_not_run(suite: Suite) -> None:
    run = suite("--backend=fake-musa", "--tier=host", "--effort=quick")
    assert run.exit_code == 0, run.output
    clause = next(clause for clause in run.results["clauses"] if clause["id"] == "DEV-1")
    assert clause["outcome"] == "not-run"
    assert {check["text"] for check in clause["checks"]} == {"left out by --tier=host"}


def test_a_deselected_check_is_not_run(suite: Suite) -> None:
    run = suite("--backend=fake-musa", "-k", "VIS-6", "--effort=quick")
    assert run.exit_code == 0, run.output
    outcomes = run.outcomes()
    assert outcomes["VIS-6"] == "pass"
    assert outcomes["REG-1"] == "not-run"


def test_a_failure_is_shrunk_recorded_and_replayed_by_one_line(suite: Suite) -> None:
    broken = suite("--backend=fake-musa", "--fault=vis-empty-read-as-unset", "-k", "VIS")
    assert broken.exit_code == 1
    failing = [check for clause in broken.results["clauses"] for check in clause["checks"] if check["outcome"] == "fail"]
    check = failing[0]
    assert check["text"]
    assert "--fault=vis-empty-read-as-unset" in check["replay"]
    again = suite(*check["replay"].split()[3:])
    replayed = [found for clause in again.results["clauses"] for found in clause["checks"] if found["check"] == check["check"]]
    assert again.exit_code == 1
    assert replayed[0]["text"] == check["text"]
    assert replayed[0]["smallest_failing_example"] == check["smallest_failing_example"]


def test_an_unfinished_accelerator_object_fails_by_clause_and_crashes_nothing(suite: Suite) -> None:
    run = suite("--accelerator=strange_accelerators:unfinished", "--effort=quick", "--no-shrink", "--tier=multi-device")
    assert run.exit_code == 1
    outcomes = run.outcomes()
    assert outcomes["DEV-1"] == "fail"
    assert "harness-error" not in outcomes.values(), run.output
    assert outcomes["SEL-1"] == "pass"
