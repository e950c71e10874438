"""From the backend that a framework asks for to the one that the accelerator has.

For: plain functions for `nccl` and `cpu:gloo,cuda:nccl` on any accelerator, and drop-in forms of `new_group` and
`init_process_group` that apply them (PGN-1 to PGN-9). Nothing is patched here. Not for: changing `torch.distributed` itself
(`torch_patch.py`) or groups that can be rebuilt (`reloadable.py`).

Wherever an accelerator may be given and is None, the process's own is used, selected at the first string that needs one. On a host
without any, the logical names stay as they are, and PyTorch says that it has no such transport.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import torch
import torch.distributed

from harness.accelerator import default
from harness.process_group import known_names
from harness.process_group.backend_spec import HOST_DEVICE, LOGICAL_BACKEND, BackendSpec

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator
    from harness.accelerator.device_forms import DeviceLike


@overload
def normalize_backend(backend: str, accelerator: Accelerator | None = None) -> str: ...
@overload
def normalize_backend(backend: None, accelerator: Accelerator | None = None) -> None: ...
@overload
def normalize_backend(backend: str | None, accelerator: Accelerator | None = None) -> str | None: ...


def normalize_backend(backend: str | None, accelerator: Accelerator | None = None) -> str | None:
    """The backend string for PyTorch: each logical entry replaced by the accelerator's transport, everything else as it was, in
    lower case and without spaces (PGN-1 to PGN-4).

    None and `undefined` are returned as they are: PyTorch inherits or detects the backend then (PGN-8).

    Raises:
        BackendSpecError: malformed; the message quotes the string (PGN-6).
    """
    if backend is None:
        return None
    spec = BackendSpec.parse(backend, _device_check(accelerator))
    if spec.names_logical_backend:
        selected = default.initialize_accelerator() if accelerator is None else accelerator
        if selected is not None:
            transport = selected.communication_backend(LOGICAL_BACKEND)
            spec = spec.for_accelerator(selected.device_type, transport)
    return str(spec)


def is_accelerator_backend(backend: str) -> bool:
    """Whether groups of this backend hold an accelerator's communicator: a bare name counts if it is the transport of a registered
    accelerator, a composite if it names a device other than the CPU (PGN-5).

    Raises:
        BackendSpecError: as `normalize_backend`.
    """
    spec = BackendSpec.parse(backend)
    if spec.is_composite:
        return any(device != HOST_DEVICE for device in spec.devices)
    return spec.entries[0].backend in known_names.registered_transports()


def weight_update_backend(backend: str = LOGICAL_BACKEND, accelerator: Accelerator | None = None) -> str:
    """The backend of a weight-update group: what the accelerator says for the logical backend, any other normalised (PGN-9).

    Raises:
        BackendSpecError: as `normalize_backend`.
    """
    spec = BackendSpec.parse(backend, _device_check(accelerator))
    if str(spec) == LOGICAL_BACKEND:
        selected = default.initialize_accelerator() if accelerator is None else accelerator
        if selected is not None:
            return selected.weight_update_backend(LOGICAL_BACKEND)
    return normalize_backend(backend, accelerator)


def distributed_device_id(index: DeviceLike = None, accelerator: Accelerator | None = None) -> torch.device | None:
    """The `device_id` for `init_process_group`; None where the transport takes none, or there is no accelerator (PGN-9).

    Raises:
        DeviceError: `index` names no visible device of the accelerator.
    """
    selected = default.initialize_accelerator() if accelerator is None else accelerator
    return None if selected is None else selected.distributed_device_id(index)


def new_group(*arguments: Any, accelerator: Accelerator | None = None, **keywords: Any) -> Any:
    """`torch.distributed.new_group` with the backend normalised; all other arguments are passed on as they were given (PGN-8).

    Raises:
        BackendSpecError: as `normalize_backend`; before anything is created.
    """
    create = torch.distributed.new_group
    arguments, keywords = with_normalized_backend(create, arguments, keywords, accelerator)
    return create(*arguments, **keywords)


def init_process_group(*arguments: Any, accelerator: Accelerator | None = None, **keywords: Any) -> None:
    """`torch.distributed.init_process_group` with the backend normalised; as `new_group`."""
    create = torch.distributed.init_process_group
    arguments, keywords = with_normalized_backend(create, arguments, keywords, accelerator)
    create(*arguments, **keywords)


def with_normalized_backend(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], accelerator: Accelerator | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with its backend normalised where it stands, by position or by keyword, as the function's own
    signature says; the form of the call does not change. A call that the function would refuse is left for it to refuse.
    """
    if keywords.get("backend") is not None:
        keywords = {**keywords, "backend": normalize_backend(keywords["backend"], accelerator)}
    position = backend_position(function)
    if position is not None and position < len(arguments) and arguments[position] is not None:
        normalized = normalize_backend(arguments[position], accelerator)
        arguments = (*arguments[:position], normalized, *arguments[position + 1 :])
    return arguments, keywords


def backend_position(function: Callable[..., Any]) -> int | None:
    """The position of the parameter `backend`, or None where the function shows none by position."""
    names = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return names.index("backend") if "backend" in names else None


def _device_check(accelerator: Accelerator | None) -> Callable[[str], bool]:
    own = None if accelerator is None else accelerator.device_type
    return lambda name: name == own or known_names.is_known_device(name)
