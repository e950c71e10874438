"""Child programs of PGN: real groups of a world of one, and the patch of `torch.distributed`, observed.

For: what must not happen in the suite's own process. Each program returns plain observations; the checks judge them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from conformance.child_main import ChildBackend
from conformance.models.process_group_names import registered_transports

TRANSPORT = "pgnccl"
"""A transport over gloo for the CPU, so that groups of it can be made anywhere."""


def groups_of_a_world_of_one(backend: ChildBackend) -> dict[str, Any]:
    """The backend that `new_group` gives a group, by the way in which the backend was given to it."""
    backend.apply_fault()
    from harness.process_group import normalizer

    _register_transport()
    store = HashStore()
    normalizer.init_process_group("NCCL", accelerator=_accelerator(), store=store, rank=0, world_size=1)
    position = list(inspect.signature(dist.new_group).parameters).index("backend")
    defaults = [parameter.default for parameter in inspect.signature(dist.new_group).parameters.values()]
    ways: dict[str, Callable[[], Any]] = {
        "by keyword": lambda: normalizer.new_group([0], backend="nccl", accelerator=_accelerator()),
        "by position": lambda: normalizer.new_group(*defaults[:position], "nccl", accelerator=_accelerator()),
        "by keyword, composite": lambda: normalizer.new_group([0], backend="cpu:nccl", accelerator=_accelerator()),
        "by position, after ranks and timeout": lambda: normalizer.new_group(
            [0], None, *defaults[2:position], "NCCL", accelerator=_accelerator()
        ),
        "none by keyword": lambda: normalizer.new_group([0], backend=None, accelerator=_accelerator()),
        "none by position": lambda: normalizer.new_group(*defaults[:position], None, accelerator=_accelerator()),
        "not given": lambda: normalizer.new_group([0], accelerator=_accelerator()),
        "another": lambda: normalizer.new_group([0], backend="gloo", accelerator=_accelerator()),
    }
    found = {"world": _config(None)}
    found |= {way: _config(make()) for way, make in ways.items()}
    found["undefined"] = _tried(lambda: _config(normalizer.new_group([0], backend="undefined", accelerator=_accelerator())))
    found["undefined, PyTorch alone"] = _tried(lambda: _config(dist.new_group([0], backend="undefined")))
    dist.destroy_process_group()
    with registered_transports({"otherccl": "cpu"}):
        normalizer.init_process_group(accelerator=_accelerator(), store=HashStore(), rank=0, world_size=1)
        found["world, none"] = dist.get_backend()
        dist.destroy_process_group()
    return found


def the_patch(backend: ChildBackend) -> dict[str, Any]:
    """What `install`, `uninstall` and the context do to `torch.distributed`, by name of the observation; every one must be true."""
    backend.apply_fault()
    from harness.process_group import torch_patch

    seen: list[Any] = []
    _spy_on_pytorch(seen)
    originals = _functions()

    def normalises() -> bool:
        dist.new_group([0], None, "nccl")
        dist.new_group(backend="nccl")
        dist.init_process_group("nccl")
        last, seen[:] = list(seen), []
        return last == [TRANSPORT] * 3

    def is_original() -> bool:
        return all(now is then for now, then in zip(_functions(), originals, strict=True))

    found = {"importing patches nothing": is_original()}
    with torch_patch.patched_torch_distributed(_accelerator()):
        found["a context normalises"] = normalises()
        inside = _functions()
        with torch_patch.patched_torch_distributed(_accelerator()):
            found["a context inside a context wraps nothing again"] = _functions() == inside
        found["an inner context leaves the outer one"] = normalises()
    found["a context restores the very same objects"] = is_original()
    try:
        with torch_patch.patched_torch_distributed(_accelerator()):
            raise LookupError("inside")
    except LookupError:
        found["an exception leaves nothing patched"] = is_original()
    torch_patch.install(_accelerator())
    once = _functions()
    found["installing normalises"] = normalises()
    torch_patch.install(_accelerator())
    found["installing twice is once"] = _functions() == once
    found["a forked child is patched"] = _in_fork(normalises)

    def uninstalls() -> bool:
        torch_patch.uninstall()
        return is_original()

    found["a forked child can uninstall"] = _in_fork(uninstalls)
    torch_patch.uninstall()
    found["uninstalling restores the very same objects"] = is_original()
    torch_patch.uninstall()
    found["uninstalling twice is once"] = is_original()
    return found


def _functions() -> list[Any]:
    return [getattr(module, name) for module in (dist, dist.distributed_c10d) for name in ("init_process_group", "new_group")]


def _spy_on_pytorch(seen: list[Any]) -> None:
    """Replace PyTorch's two functions by ones of the same signature that only note the backend that reaches them."""
    for name in ("init_process_group", "new_group"):
        signature = inspect.signature(getattr(dist, name))

        def spy(*arguments: Any, _signature: inspect.Signature = signature, **keywords: Any) -> None:
            seen.append(_signature.bind(*arguments, **keywords).arguments.get("backend"))

        spy.__signature__ = signature  # type: ignore[attr-defined]
        for module in (dist, dist.distributed_c10d):
            setattr(module, name, spy)


def _in_fork(question: Callable[[], bool]) -> bool:
    """The answer of a forked child; false where it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if question() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _accelerator() -> Any:
    """An accelerator whose device is the CPU and whose transport is ours."""
    from harness.accelerator.generic import GenericAccelerator

    class WithTransport(GenericAccelerator):
        communication_backend_name = TRANSPORT

    return WithTransport("cpu")


def _register_transport() -> None:
    def create(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    dist.Backend.register_backend(TRANSPORT, create, devices=["cpu"])


def _config(group: Any) -> str:
    return str(dist.get_backend_config(group))


def _tried(call: Callable[[], str]) -> str:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - how PyTorch refuses is the observation
        return type(error).__name__
