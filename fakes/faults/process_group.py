"""Faults of process-group backend names: normalizers as they were, or could be, written wrong.

For: PGN-1 to PGN-8, what becomes of a string. Not for: functions that take one (`process_group_creation.py`), the patch of
`torch.distributed` (`process_group_patch.py`), or groups that are destroyed and rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.errors import BackendSpecError
from harness.process_group import backend_spec, known_names, normalizer
from harness.process_group.backend_spec import BackendEntry, BackendSpec

Normalize = Callable[[str, Any], str]
_TRANSPORTS = ("nccl", "mccl", "hccl", "xccl", "cncl")


def _normalizing(make: Callable[[Normalize], Normalize]) -> Callable[[Patches], None]:
    """A fault in `normalize_backend`: `make` gets the right one and returns the wrong one. None passes, unless it is the fault."""

    def apply(patches: Patches) -> None:
        right: Any = normalizer.normalize_backend
        wrong = make(right)

        def normalize_backend(backend: Any, accelerator: Any = None) -> Any:
            return right(backend, accelerator) if backend is None else wrong(backend, accelerator)

        patches.set(normalizer, "normalize_backend", normalize_backend)

    return apply


def _mapping(make: Callable[[BackendSpec, str, str], BackendSpec]) -> Callable[[Patches], None]:
    """A fault in mapping a parsed string to an accelerator; `make` gets the spec, the device type and the transport."""
    return lambda patches: patches.set(BackendSpec, "for_accelerator", make)


def _setting(owner: Any, attribute: str, value: Any) -> Callable[[Patches], None]:
    return lambda patches: patches.set(owner, attribute, value)


def _transport(accelerator: Any) -> str:
    return str(accelerator.communication_backend_name)


# Mapping ----------------------------------------------------------------------------------------------------------------------


def _only_bare(right: Normalize) -> Normalize:
    return lambda text, accelerator: text.lower() if ":" in text and right(text, accelerator) else right(text, accelerator)


def _exact_word(right: Normalize) -> Normalize:
    return lambda text, accelerator: text if text.lower() == "nccl" != text else right(text, accelerator)


def _keeps_spaces(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        right(text, accelerator)
        return text.lower() if text != text.strip() else right(text, accelerator)

    return wrong


def _replaces_substring(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        normal = right(text, accelerator)
        return normal.replace("nccl", _transport(accelerator)) if accelerator.device_type != "cuda" else normal

    return wrong


def _keeps_device_half(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        right(text, accelerator)
        spec = BackendSpec.parse(text)
        return ",".join(str(BackendEntry(e.device, _transport(accelerator) if e.backend == "nccl" else e.backend)) for e in spec)

    return wrong


def _maps_all_of_cuda(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        mapped = BackendEntry(accelerator.device_type, _transport(accelerator))
        spec = BackendSpec.parse(right(text, accelerator))
        return str(BackendSpec(tuple(mapped if entry.device == "cuda" else entry for entry in spec)))

    return wrong


def _sorts(spec: BackendSpec, device_type: str, transport: str) -> BackendSpec:
    return BackendSpec(tuple(sorted(_RIGHT_MAPPING(spec, device_type, transport), key=str)))


def _accepts_conflict(spec: BackendSpec, device_type: str, transport: str) -> BackendSpec:
    try:
        return _RIGHT_MAPPING(spec, device_type, transport)
    except BackendSpecError:
        kept = {entry.device: entry for entry in spec if entry.device != "cuda"}
        return BackendSpec(tuple({**kept, device_type: BackendEntry(device_type, transport)}.values()))


_RIGHT_MAPPING = BackendSpec.for_accelerator


def _twice_is_different(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        normal = right(text, accelerator)
        is_normal_already = text.strip().lower() == _transport(accelerator) != "nccl"
        return f"{accelerator.device_type}:{normal}" if is_normal_already else normal

    return wrong


def _loses_cpu_half_on_cuda(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        normal = right(text, accelerator)
        return "nccl" if accelerator.device_type == "cuda" and normal == "cpu:gloo,cuda:nccl" else normal

    return wrong


def _swallows_plugins(right: Normalize) -> Normalize:
    known = {*_TRANSPORTS, "gloo", "mpi", "ucc", "fake", "undefined"}

    def wrong(text: str, accelerator: Any) -> str:
        normal = right(text, accelerator)
        return normal if ":" in normal or normal in known else _transport(accelerator)

    return wrong


def _every_bare_name_is_logical(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        normal = right(text, accelerator)
        return _transport(accelerator) if normal in _TRANSPORTS else normal

    return wrong


# Detection --------------------------------------------------------------------------------------------------------------------


def _detects_substrings(backend: str) -> bool:
    return any(transport in backend.lower() for transport in _TRANSPORTS)


def _detects_any_composite(backend: str) -> bool:
    return ":" in backend or backend.strip().lower() in _TRANSPORTS


def _detects_only_nccl(backend: str) -> bool:
    return any(entry.backend == "nccl" and entry.device != "cpu" for entry in BackendSpec.parse(backend))


# Malformed strings ------------------------------------------------------------------------------------------------------------


def _accepts_malformed(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        try:
            return right(text, accelerator)
        except BackendSpecError:
            return text

    return wrong


def _drops_empty_entries(right: Normalize) -> Normalize:
    return lambda text, accelerator: right(",".join(filter(None, text.split(","))) or "gloo", accelerator)


def _says_nothing(right: Normalize) -> Normalize:
    def wrong(text: str, accelerator: Any) -> str:
        try:
            return right(text, accelerator)
        except BackendSpecError:
            raise BackendSpecError("invalid backend") from None

    return wrong


def _undefined_is_logical(right: Normalize) -> Normalize:
    return lambda text, accelerator: right("nccl" if text == "undefined" else text, accelerator)


FAULTS: tuple[Fault, ...] = (
    Fault("pgn-composite-not-mapped", ("PGN-2",), "Only a bare nccl is mapped; composites stay.", "B66", _normalizing(_only_bare)),
    Fault("pgn-case-not-folded", ("PGN-1",), "Only nccl in lower case is mapped.", "B66", _normalizing(_exact_word)),
    Fault("pgn-spaces-kept", ("PGN-1",), "A string with spaces around it is not read.", "B66", _normalizing(_keeps_spaces)),
    Fault("pgn-substring-mapped", ("PGN-4",), "Every nccl inside a name is replaced.", "B65", _normalizing(_replaces_substring)),
    Fault(
        "pgn-device-half-kept",
        ("PGN-2", "PGN-7"),
        "In a composite the transport is mapped, but its device stays cuda.",
        "B58",
        _normalizing(_keeps_device_half),
    ),
    Fault(
        "pgn-any-backend-on-cuda-mapped",
        ("PGN-2",),
        "Every entry for cuda is mapped, whatever its backend is.",
        "B65",
        _normalizing(_maps_all_of_cuda),
    ),
    Fault("pgn-order-lost", ("PGN-2",), "The entries of a composite come out sorted.", "derived", _mapping(_sorts)),
    Fault(
        "pgn-normalized-twice",
        ("PGN-3",),
        "The transport's own name is taken for a logical one, so that normalizing twice differs.",
        "B66",
        _normalizing(_twice_is_different),
    ),
    Fault(
        "pgn-cpu-half-lost-on-cuda",
        ("PGN-3",),
        "On CUDA the mixed backend becomes plain nccl, which has no transport for CPU tensors.",
        "B62",
        _normalizing(_loses_cpu_half_on_cuda),
    ),
    Fault(
        "pgn-plugin-swallowed",
        ("PGN-4",),
        "A name that PyTorch does not bring becomes the accelerator's transport.",
        "derived",
        _normalizing(_swallows_plugins),
    ),
    Fault(
        "pgn-foreign-transport-mapped",
        ("PGN-4",),
        "Another vendor's transport, asked for by name, becomes this accelerator's.",
        "B66",
        _normalizing(_every_bare_name_is_logical),
    ),
    Fault(
        "pgn-substring-detection",
        ("PGN-5",),
        "A group counts as an accelerator's if a transport's name is anywhere in the string.",
        "B65",
        _setting(normalizer, "is_accelerator_backend", _detects_substrings),
    ),
    Fault(
        "pgn-any-composite-detected",
        ("PGN-5",),
        "Every composite counts as an accelerator's, one for the CPU alone too.",
        "seed",
        _setting(normalizer, "is_accelerator_backend", _detects_any_composite),
    ),
    Fault(
        "pgn-only-nccl-detected",
        ("PGN-5",),
        "Only nccl counts as an accelerator's transport.",
        "seed",
        _setting(normalizer, "is_accelerator_backend", _detects_only_nccl),
    ),
    Fault("pgn-malformed-accepted", ("PGN-6",), "A malformed string is passed on.", "derived", _normalizing(_accepts_malformed)),
    Fault(
        "pgn-empty-entry-dropped", ("PGN-6",), "Empty entries are left out silently.", "derived", _normalizing(_drops_empty_entries)
    ),
    Fault(
        "pgn-duplicate-device-accepted",
        ("PGN-6",),
        "A device that is named twice is passed on.",
        "derived",
        _setting(backend_spec, "_refuse_repeated_device", lambda _entries, _where: None),
    ),
    Fault(
        "pgn-unknown-device-accepted",
        ("PGN-6",),
        "A device that nobody knows, such as gpu, is passed on.",
        "derived",
        _setting(known_names, "is_known_device", lambda _name: True),
    ),
    Fault(
        "pgn-conflict-accepted",
        ("PGN-6",),
        "An entry that conflicts with the mapped one is overwritten by it.",
        "derived",
        _mapping(_accepts_conflict),
    ),
    Fault("pgn-error-without-quote", ("PGN-6",), "The refusal does not say which string.", "derived", _normalizing(_says_nothing)),
    Fault(
        "pgn-undefined-mapped",
        ("PGN-8",),
        "undefined becomes the transport, so that PyTorch detects nothing.",
        "B59",
        _normalizing(_undefined_is_logical),
    ),
)
