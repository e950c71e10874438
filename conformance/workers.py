"""pytest-xdist's workers, where there are several: one zygote and one rank server for all, and long checks first.

For: preparing such a run in the controller, and the order of checks in a worker. Not for: the servers themselves (`shared_servers.py`), or
workers that may die (`isolation.py`). A worker that finds no server, as on another host, starts its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from conformance.children import SHARED_ZYGOTE, ZYGOTE
from conformance.ranks.server import RANK_SERVER, SHARED_SERVER, preloaded
from conformance.shared_servers import SharedServer


def prepare(config: pytest.Config, *, simulated: bool) -> None:
    """In the controller of several workers: hand out checks one by one, and share servers until the end of the run."""
    if hasattr(config, "workerinput") or len(getattr(config.option, "tx", None) or ()) < 2:
        return
    if config.option.maxschedchunk is None:
        config.option.maxschedchunk = 1
    with contextlib.ExitStack() as until_the_end:
        folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="accelerator-conformance-servers-")))
        for variable, command, kind, preload in (
            (SHARED_ZYGOTE, ZYGOTE, socket.SOCK_STREAM, ()),
            (SHARED_SERVER, RANK_SERVER, socket.SOCK_SEQPACKET, preloaded(simulated=simulated)),
        ):
            if variable in os.environ:
                continue  # somebody shares one already
            path = folder / variable.rpartition("_")[2].lower()
            try:
                server = SharedServer(command, path, kind, preload)
            except OSError:  # a socket's path has about a hundred characters
                continue
            until_the_end.callback(server.close)
            os.environ[variable] = str(path)
            until_the_end.callback(os.environ.pop, variable, None)
        config.add_cleanup(until_the_end.pop_all().close)


def long_checks_first(items: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """The items in the order in which several workers end soonest; as they are where there are not several.

    Each worker is given two to begin with, so that the first long ones alternate with short ones.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers < 2:
        return items
    long = [item for item in items if (marker := item.get_closest_marker("clause")) is not None and marker.kwargs["long"]]
    short = [item for item in items if item not in long]
    pairs = chain.from_iterable(zip_longest(long[:workers], short[:workers]))
    return [*(item for item in pairs if item is not None), *long[workers:], *short[workers:]]
