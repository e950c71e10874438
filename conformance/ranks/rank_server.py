"""A warm, single-threaded process that forks ranks. Run as a script; the suite imports it only to become a server by a fork (`server.py`).

For: starting ranks in a tenth of a second, since torch is imported here already and nothing of the project is. Not for: feeding them, which
the pool does over a socket to each of them (`local_pool.py`).

Usage: `rank_server.py CONTROL_FD [LISTEN_FD]`. A request is one packet of JSON: `{"start": [...]}` comes with three descriptors a rank (its
socket, its log, the file with its operation) and is answered with the process ids; `{"end": true, "gone": [...]}` is answered with how each
had ended by itself, a wait status or null, after all are gone; `{"preload": [...]}` names modules to import here, and is not answered. When
the other side closes, every rank is ended. With LISTEN, a server is forked for whoever connects there, until CONTROL closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # its own folder has names that must not shadow anybody's

from conformance import warm_server

PR_SET_CHILD_SUBREAPER = 36
DESCRIPTORS = 3
_ENDING_LIMIT = 2.0  # seconds between a process's closing its files and its end


def start(request: dict[str, Any], descriptors: list[int], control: socket.socket) -> list[int]:
    """Fork the ranks; their process ids."""
    processes = []
    for rank, common in enumerate(request["start"]):
        child = os.fork()
        if child == 0:
            become_rank(rank, common, descriptors, control)
        processes.append(child)
    for descriptor in descriptors:
        os.close(descriptor)
    return processes


def become_rank(rank: int, request: dict[str, Any], descriptors: list[int], control: socket.socket) -> None:
    """Never returns: the rank's whole life."""
    status = 1
    try:
        os.setsid()
        warm_server.end_with_the_server()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        control.close()
        own = descriptors[rank * DESCRIPTORS : (rank + 1) * DESCRIPTORS]
        for descriptor in descriptors:
            if descriptor not in own:
                os.close(descriptor)
        os.dup2(own[1], 1)
        os.dup2(own[1], 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr] # else a process that dies takes it along
        sys.path[:] = request["sys_path"]
        os.chdir(request["directory"])
        os.environ.update(request["environment"])
        warm_server.import_device_backends()
        from conformance.ranks import rank_main  # type: ignore[import-not-found, unused-ignore]

        rank_main.serve(request, socket.socket(fileno=own[0]), own[2])
        status = 0
    except BaseException:  # noqa: BLE001 - the log is the only place to say it
        with contextlib.suppress(ValueError):
            traceback.print_exc()
    finally:
        with contextlib.suppress(ValueError):  # a program closed them
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def end(processes: list[int], gone: list[int]) -> list[int | None]:
    """End all ranks and whatever they started; the wait status of those that had ended by themselves. `gone` are the ranks whose
    connection is closed: they are about to end."""
    ended = [status_of(process, _ENDING_LIMIT if rank in gone else 0.0) for rank, process in enumerate(processes)]
    for process, status in zip(processes, ended, strict=True):
        try:
            os.killpg(process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            if status is None:  # it has not made its process group yet
                os.kill(process, signal.SIGKILL)
        if status is None:
            os.waitpid(process, 0)
    end_orphans()
    return ended


def become_their_parent() -> None:
    """Have the kernel hand over to this process what its ranks started, once they are gone; where the kernel can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """End what ranks left behind in sessions of its own, now that it is handed over to this process; and what that left behind in turn."""
    while orphans := children():
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def children() -> list[int]:
    """This process's children; none where the system does not tell."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as listed:
                found += map(int, listed.read().split())
    return found


def status_of(process: int, limit: float) -> int | None:
    """The wait status of a process that ends within `limit` seconds, else None."""
    deadline = time.monotonic() + limit
    while True:
        pid, status = os.waitpid(process, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() >= deadline:
            return None
        select.select([], [], [], 0.005)


def serve(control: socket.socket) -> None:
    """Answer requests until the other side closes; then end every rank."""
    become_their_parent()
    processes: list[int] = []
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, warm_server.MOST, 1024)
        if not data:
            break
        request = json.loads(data)
        if "preload" in request:
            warm_server.preload(request)
            continue
        if "start" in request:
            processes = start(request, descriptors, control)
            answer: list[Any] = list(processes)
        else:
            answer = end(processes, request["gone"])
            processes = []
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more; the next request is the end
            control.send(json.dumps(answer).encode())
    end(processes, [])


if __name__ == "__main__":
    sys.path.pop(0)
    warm_server.serve_on(sys.argv[1:], serve)
