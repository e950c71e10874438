"""Several workers of pytest-xdist: they share their servers, long checks come first, and a run without a socket goes on without."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.children import SHARED_ZYGOTE, ChildProcesses
from conformance.ranks.server import SHARED_SERVER
from conformance.shared_servers import connection_to
from conformance.workers import long_checks_first, prepare

_ALONE = (SHARED_ZYGOTE, SHARED_SERVER)
_CHILD = {"backend": {"backend": "cpu"}, "environment": {}, "timeout": 60.0, "arguments": {}}


def item(name: str, *, long: bool) -> Any:
    marker = SimpleNamespace(kwargs={"long": long})
    return SimpleNamespace(name=name, get_closest_marker=lambda _: marker)


@pytest.mark.parametrize(
    ("workers", "due"),
    [(1, "aBcDEf"), (2, "BaDcEf"), (3, "BaDcEf"), (5, "BaDcEf")],
)
def test_each_worker_begins_with_a_long_check_and_a_short_one(workers: int, due: str) -> None:
    items = [item(name, long=name.isupper()) for name in "aBcDEf"]
    config: Any = SimpleNamespace(workerinput={"workercount": workers})
    assert "".join(entry.name for entry in long_checks_first(items, config)) == due


def test_several_workers_are_given_servers_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in _ALONE:
        monkeypatch.delenv(variable, raising=False)
    cleanups: list[Callable[[], object]] = []
    config: Any = SimpleNamespace(option=SimpleNamespace(tx=["popen"] * 2, maxschedchunk=None), add_cleanup=cleanups.append)
    prepare(config, simulated=False)
    paths = [os.environ[variable] for variable in _ALONE]
    connections = [connection_to(path, kind) for path, kind in zip(paths, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET), strict=True)]
    assert None not in connections
    assert config.option.maxschedchunk == 1
    for connection in connections:
        connection.close()
    for clean_up in cleanups:
        clean_up()
    assert not [path for path in paths if Path(path).exists()]
    assert not set(_ALONE) & os.environ.keys()


def test_one_worker_has_its_own() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(tx=["popen"], maxschedchunk=None))
    prepare(config, simulated=False)
    assert config.option.maxschedchunk is None


def test_workers_leave_nothing(tmp_path: Path) -> None:
    run_with_two_workers("PGN-4 or COL-5", tmp_path)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("pytest-of-")]
    assert not _processes_with(f"TMPDIR={tmp_path}\0")


def test_where_a_socket_has_no_room_each_worker_has_its_own(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    run_with_two_workers("DEV-1 or COL-5", folder)


def run_with_two_workers(checks: str, folder: Path) -> None:
    """Run some checks with a folder for temporary files; they must pass."""
    environment = {name: value for name, value in os.environ.items() if name not in _ALONE and not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "conformance", "--backend=cpu", "-n", "2", "--examples=5", "-k", checks],
        env={**environment, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_shared_zygote_that_is_gone_is_replaced_by_an_own_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED_ZYGOTE, str(tmp_path / "nobody"))
    assert connection_to(str(tmp_path / "nobody"), socket.SOCK_STREAM) is None
    children = ChildProcesses()
    try:
        assert children.run("builtins:callable", fresh_interpreter=False, **_CHILD) is True
    finally:
        children.close()


def _processes_with(setting: str) -> list[str]:
    """The commands of processes that have a variable set."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if setting.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found
