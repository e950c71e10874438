"""Inside a rank: take programs, run them, answer.

For: every rank, whoever started it. Not for: starting ranks. A rank is one process for many examples, so that a program must leave it as it
found it: it destroys the WORLD that it made itself, and keeps the one of `RankContext.world`.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from datetime import timedelta
from functools import cached_property
from typing import Any

from conformance.ranks.device_leases import lease_device
from conformance.ranks.store_server import Stores

COLLECTIVE_TIMEOUT = timedelta(seconds=6)
"""How long a collective waits for other ranks before it raises, where none is meant to fail."""
FAILURE_TIMEOUT = timedelta(seconds=3)
"""The same where one is meant to fail."""
SLOW_TIMEOUT = timedelta(seconds=20)
"""The same where one is late, and is to be waited for."""
GRACE = timedelta(seconds=10)
"""How long after the timeout every rank must have noticed that another one failed (PGL-9)."""
OPERATION_LIMIT = 500
_TEXT_LIMIT = 20_000


class RankContext:
    """What a program is handed: who it is, the backend under test, and places to meet the other ranks.

    `make_accelerator` is the same as in other child programs (`conformance.child_main.ChildBackend`). `lease_devices` asks for a device of
    this host that no other rank has; otherwise rank r has the r-th of the devices of its own machine.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        make_accelerator: Any,
        operation_file: int,
        *,
        store: tuple[str, int],
        lease_devices: bool = False,
        epoch: int = 0,
    ) -> None:
        self.rank = rank
        self.size = size
        self.make_accelerator = make_accelerator
        self.timeout = COLLECTIVE_TIMEOUT
        self._operation_file = operation_file
        self._lease_devices = lease_devices
        self._store_count = 0
        self.stores = Stores(*store)
        self._epoch = epoch

    def operation(self, name: str) -> None:
        """Say what this rank is about to do; it is reported if the rank dies, raises or stalls."""
        data = name.encode(errors="replace")[:OPERATION_LIMIT].ljust(OPERATION_LIMIT)
        os.pwrite(self._operation_file, data, 0)

    @cached_property
    def accelerator(self) -> Any:
        """The backend's adapter, with this rank's device as the current one; the fault of the run, if any, is in force."""
        accelerator = self.make_accelerator()
        if accelerator.device_type != "cpu":
            count = accelerator.device_count()
            index = lease_device(accelerator.device_type, count, self.rank % count) if self._lease_devices else self.rank % count
            accelerator.set_device(index)
        return accelerator

    @cached_property
    def own_device(self) -> Any:
        """This rank's device, a `torch.device`."""
        import torch

        kind = self.accelerator.device_type
        return torch.device(kind) if kind == "cpu" else torch.device(kind, self.accelerator.current_device())

    @cached_property
    def backend(self) -> str:
        """What a WORLD of the backend under test is made with: `gloo`, or `cpu:gloo` and the device's transport.

        A simulated device whose transport nobody has registered, or that has none, communicates over the CPU.
        """
        import torch.distributed as dist

        kind = self.accelerator.device_type
        transport = str(getattr(self.accelerator, "communication_backend_name", "gloo"))
        if kind == "cpu" or kind not in dist.Backend.backend_capability.get(transport, ()):
            return "gloo"
        return f"cpu:gloo,{kind}:{transport}"

    @cached_property
    def device(self) -> Any:
        """The device whose tensors go through the transport under test."""
        import torch

        return torch.device("cpu") if self.backend == "gloo" else self.own_device

    def new_store(self) -> Any:
        """A store that nobody has used, for this example, the same one on every rank that calls this equally often."""
        return self.stores.new(self._new_prefix())

    def _new_prefix(self) -> str:
        self._store_count += 1
        return f"ranks-{self._epoch}/store-{self._store_count}"

    def world(self) -> None:
        """Have a WORLD over `backend`, started at the first call and kept for later examples."""
        import torch.distributed as dist

        if not dist.is_initialized():
            self.operation("init_process_group")
            dist.init_process_group(
                self.backend,
                store=self.stores.new_kept(self._new_prefix()),
                rank=self.rank,
                world_size=self.size,
                timeout=COLLECTIVE_TIMEOUT,
            )


def serve(request: dict[str, Any], connection: socket.socket, operation_file: int) -> None:
    """Run programs until the pool closes the connection."""
    from conformance.child_main import ChildBackend

    gc.freeze()  # what was imported before the fork: collecting it again and again would copy its pages
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)
    context = RankContext(
        request["rank"],
        request["size"],
        ChildBackend(request["backend"]),
        operation_file,
        store=request["store"],
        lease_devices=request["lease_devices"],
        epoch=request["epoch"],
    )
    process = os.getpid()
    with connection, connection.makefile("rb") as requests:
        for line in requests:
            answer = run(context, json.loads(line))
            if os.getpid() != process:  # only one may answer
                print(
                    f"process {os.getpid()}, which the program forked, came out of it: {answer.get('text', 'no error')}", flush=True
                )
                os._exit(1)
            connection.sendall(json.dumps(answer).encode() + b"\n")


def run(context: RankContext, request: dict[str, Any]) -> dict[str, Any]:
    """One program's answer."""
    module, _, function = request["program"].partition(":")
    context.stores.begin_example()
    try:
        context.operation("making the backend")
        _ = context.accelerator
        context.operation("")
        value = getattr(importlib.import_module(module), function)(context, **request["arguments"])
        json.dumps(value)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is this rank's answer
        described = traceback.TracebackException.from_exception(error)  # unlike `str`, it takes an error that cannot say what it is
        text, message = _shortened("".join(described.format())), _shortened(str(described))
        return {"how": "raised", "text": text, "error": type(error).__name__, "message": message}
    return {"how": "value", "value": value}


def _shortened(text: str) -> str:
    half = _TEXT_LIMIT // 2
    if len(text) <= _TEXT_LIMIT:
        return text
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"
