"""What the zygote and the rank server have in common: a process that has imported torch already and forks.

For: importing torch once and in a way that harms no fork, serving one client or forking a server for each, and ending with whoever forked
it. Not for: what they do for a client (`zygote_server.py`, `ranks/rank_server.py`). Imports nothing but Python's own library.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

MOST = 1 << 16  # bytes of a request
_PR_SET_PDEATHSIG = 1
_ENDING_LIMIT = 10  # seconds for forked servers to end once their clients are gone


def serve_on(descriptors: list[str], serve: Callable[[socket.socket], None]) -> None:
    """Serve the other side of the socket that the first descriptor names, until it closes; where there is a second, which names a
    listening socket, fork a server for whoever connects there meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(descriptors[0])) as control:
        if len(descriptors) == 1:
            import_torch()
            serve(control)
            return
        with socket.socket(fileno=int(descriptors[1])) as listener:
            _serve_whoever_connects(control, listener, serve)


def _serve_whoever_connects(control: socket.socket, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Torch, and what `control` says to preload, is imported when the first client comes: perhaps none does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the servers one by one
    requests: list[dict[str, Any]] = []
    while True:
        ready, _, _ = select.select([control, listener], [], [])
        if control in ready:
            data = control.recv(MOST)
            if not data:
                break
            requests.append(json.loads(data))
        if listener in ready:
            client, _ = listener.accept()
            with client:
                import_torch()
                while requests:
                    preload(requests.pop())
                if os.fork() == 0:
                    _become_server(client, (control, listener), serve)
    signal.alarm(_ENDING_LIMIT)  # its end is that of the servers too
    with contextlib.suppress(ChildProcessError):
        os.wait()  # for all of them, as their ends are ignored


def _become_server(client: socket.socket, others: tuple[socket.socket, ...], serve: Callable[[socket.socket], None]) -> None:
    """Never returns."""
    try:
        end_with_the_server()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in others:
            other.close()
        serve(client)
    finally:
        os._exit(0)


def end_with_the_server() -> None:
    """Have the kernel end this process when the one that forked it is gone, in whatever manner; where the kernel can."""
    server = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


def import_torch() -> None:
    """Import torch alone, for one thread, without the device backends that each child loads."""
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    torch.set_num_threads(1)
    # PyTorch imports it, and with it sympy, at the first operator on a device of Python's; each child would pay for that.
    with contextlib.suppress(Exception):
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")
    if autoload is not None:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = autoload


def import_device_backends() -> None:
    """In a child, load PyTorch's device backends, which were put off so that each child has its own and they see its variables."""
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        import torch

        load = getattr(torch, "_import_device_backends", None)
        if load is not None:
            load()


def preload(request: dict[str, Any]) -> None:
    """Import modules here, so that every child has them; one that fails is left to the children, which can report it."""
    sys.path[:] = request["sys_path"]
    for name in request["preload"]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children then neither walk nor copy what was made here
