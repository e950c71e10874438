"""A process-group backend string as a value.

For: reading `"nccl"` and `"cpu:gloo,cuda:nccl"` once, by the grammar that PyTorch uses, so that nobody searches them for substrings
(PGN-2, PGN-5, PGN-6). Not for: which accelerator is meant (`normalizer.py`) or which names exist (`known_names.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.errors import BackendSpecError, BackendSpecTypeError
from harness.process_group import known_names

LOGICAL_BACKEND = "nccl"
"""The backend by which frameworks mean "the accelerator's transport"."""
LOGICAL_DEVICE = "cuda"
"""The device by which frameworks mean "the accelerator" beside the logical backend."""
HOST_DEVICE = "cpu"

_NAME = re.compile(r"[^\s:,]+")
_FORMS = "a backend is a bare name such as 'nccl', or device:backend pairs such as 'cpu:gloo,cuda:nccl'"


@dataclass(frozen=True)
class BackendEntry:
    """One part of a backend string: `device` is None in a bare name."""

    device: str | None
    backend: str

    def __str__(self) -> str:
        return self.backend if self.device is None else f"{self.device}:{self.backend}"


@dataclass(frozen=True)
class BackendSpec:
    """A bare backend name (one entry without a device), or an ordered map from devices to backends.

    `str()` prints the form that PyTorch reads: lower case, no spaces, the order kept. Equal specs print equally; `text` is what was
    written, for errors.
    """

    entries: tuple[BackendEntry, ...]
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str, is_known_device: Callable[[str], bool] | None = None) -> BackendSpec:
        """The value of a backend string. Case and the spaces around its parts do not matter.

        `is_known_device` says whether a device type exists; without it, PyTorch and the accelerator registry are asked.

        Raises:
            BackendSpecError: an empty entry, a missing half or colon, white space inside a name, a device that does not exist or
                is named twice. The message quotes the string (PGN-6).
            BackendSpecTypeError: not a string.
        """
        if not isinstance(text, str):
            raise BackendSpecTypeError(f"a process-group backend is a string, not {text!r} ({type(text).__name__}); {_FORMS}")
        parts = text.lower().split(",")
        is_composite = len(parts) > 1 or ":" in text
        spec = cls(tuple(_entry(part, text, is_composite) for part in parts), text)
        spec._check_devices(text, is_known_device or known_names.is_known_device)
        return spec

    def __str__(self) -> str:
        return ",".join(str(entry) for entry in self.entries)

    def __iter__(self) -> Iterator[BackendEntry]:
        return iter(self.entries)

    @property
    def is_composite(self) -> bool:
        """Whether the string names devices."""
        return self.entries[0].device is not None

    @property
    def names_logical_backend(self) -> bool:
        """Whether a backend in it is `nccl`, by which the accelerator's own transport may be meant."""
        return any(entry.backend == LOGICAL_BACKEND for entry in self.entries)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that are named, in order; empty for a bare name."""
        return tuple(entry.device for entry in self.entries if entry.device is not None)

    def for_accelerator(self, device_type: str, transport: str) -> BackendSpec:
        """The spec with each logical entry mapped to an accelerator: `nccl` to `transport`, and `cuda:nccl` or
        `<device_type>:nccl` to `<device_type>:<transport>` (PGN-1, PGN-2). Everything else stays, in its place.

        Where the accelerator is the host itself, the mapped entry is left out if the string has it already.

        Raises:
            BackendSpecError: another entry names the accelerator's device too, so that they conflict (PGN-6).
        """
        if not self.is_composite:
            return BackendSpec((BackendEntry(None, transport),), self.text) if self.names_logical_backend else self
        mapped = BackendEntry(device_type, transport)
        entries: list[BackendEntry] = []
        for entry in self.entries:
            is_logical = entry.backend == LOGICAL_BACKEND and entry.device in (LOGICAL_DEVICE, device_type)
            new = mapped if is_logical else entry
            if new == mapped and device_type == HOST_DEVICE and mapped in entries:
                continue
            entries.append(new)
        meant = ",".join(map(str, entries))
        _refuse_repeated_device(entries, f"backend {self.text or str(self)!r}, which on this accelerator means {meant!r},")
        return BackendSpec(tuple(entries), self.text)

    def _check_devices(self, text: str, is_known_device: Callable[[str], bool]) -> None:
        for device in self.devices:
            if not is_known_device(device):
                raise BackendSpecError(
                    f"backend {text!r} names the device {device!r}, which neither PyTorch nor the accelerator registry knows; "
                    f"name a device type, such as {', '.join(known_names.example_devices())}"
                )
        _refuse_repeated_device(self.entries, f"backend {text!r}")


def _entry(part: str, text: str, is_composite: bool) -> BackendEntry:
    halves = [half.strip() for half in part.split(":")]
    if not any(halves):
        raise BackendSpecError(f"backend {text!r} has an empty entry; {_FORMS}")
    if is_composite and len(halves) != 2:
        how = "lacks a colon" if len(halves) == 1 else "has more than one colon"
        raise BackendSpecError(f"entry {part.strip()!r} of backend {text!r} {how}; {_FORMS}")
    for half in halves:
        if not half:
            raise BackendSpecError(f"entry {part.strip()!r} of backend {text!r} lacks a half; {_FORMS}")
        if not _NAME.fullmatch(half) or not half.isprintable():
            raise BackendSpecError(
                f"{half!r} in backend {text!r} is not a name: it has white space or control characters; {_FORMS}"
            )
    return BackendEntry(halves[0] if is_composite else None, halves[-1])


def _refuse_repeated_device(entries: tuple[BackendEntry, ...] | list[BackendEntry], where: str) -> None:
    seen: set[str | None] = set()
    for entry in entries:
        if entry.device in seen:
            raise BackendSpecError(f"{where} names the device {entry.device!r} twice; keep one of the entries")
        seen.add(entry.device)
