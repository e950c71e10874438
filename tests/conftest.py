"""Fixtures that the project's own tests share."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from suite_runner import SuiteRun, run_suite

from conformance.children import SHARED_ZYGOTE, ZYGOTE, ChildProcesses
from conformance.ranks.server import RANK_SERVER, SHARED_SERVER, preloaded
from conformance.shared_servers import SharedServer


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `tox -e thorough`."""
    parser.addoption("--thorough", action="store_true", help="run what takes long too: every fault of the catalogue, hangs, …")


def pytest_configure(config: pytest.Config) -> None:
    """The marker behind the option."""
    config.addinivalue_line("markers", "thorough: takes long, and another test shows the same of something else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is thorough unless asked for. Tests that install a machine in their own process come last: afterwards PyTorch knows
    its device type for good, which tests of the reference against stand-ins could not bear."""
    if not config.getoption("thorough"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("thorough")])
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    items.sort(key=lambda item: "fakes" in item.path.parts)


@pytest.fixture(scope="session")
def children() -> Iterator[ChildProcesses]:
    """Forks child processes from a zygote that has all that a run of the suite imports."""
    processes = ChildProcesses(
        preload=("conformance.plugin", "reports.pytest_plugin", "fakes.faults", "hypothesis.strategies", "xdist")
    )
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def shared_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a zygote with nothing but torch, for the child processes of every run of the suite."""
    path = tmp_path_factory.mktemp("zygote") / "socket"
    server = SharedServer(ZYGOTE, path, socket.SOCK_STREAM)
    yield path
    server.close()


@pytest.fixture(scope="session")
def shared_rank_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a server that forks the ranks of every run of the suite."""
    path = tmp_path_factory.mktemp("ranks") / "socket"
    server = SharedServer(RANK_SERVER, path, socket.SOCK_SEQPACKET, (*preloaded(simulated=True), "fakes.faults"))
    yield path
    server.close()


@pytest.fixture(scope="session")
def suite(children: ChildProcesses, shared_zygote: Path, shared_rank_server: Path) -> Callable[..., SuiteRun]:
    """Runs the conformance suite in a child process: `suite("--backend=cpu", "-k", "DEV")`."""
    shared: dict[str, str | None] = {SHARED_ZYGOTE: str(shared_zygote), SHARED_SERVER: str(shared_rank_server)}

    def run(*arguments: str, environment: dict[str, str | None] | None = None, **options: Any) -> SuiteRun:
        return run_suite(children, *arguments, environment={**shared, **(environment or {})}, **options)

    return run
