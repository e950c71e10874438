"""The closed set of capabilities, and what proves or refutes each.

For: asking a backend what it can do without a typo reading as "no" (CAP-1), and for documents that list the probes (CAP-2, CAP-3).
Not for: the answers themselves; those are `Accelerator.probe` and `Accelerator.supports`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum

from harness.errors import UnknownCapabilityError


class Capability(str, Enum):
    """Everything a backend may declare or deny. A member equals its name as a string, so `supports("streams")` works too.

    `description`, `probe`, `is_hint` and `needs_device` come from the member's entry in `CAPABILITY_DETAILS`.
    """

    AMP = "amp"
    BF16 = "bf16"
    FP16 = "fp16"
    STREAMS = "streams"
    EVENTS = "events"
    EVENT_TIMING = "event_timing"
    RNG = "rng"
    DEVICE_GENERATOR = "device_generator"
    DEVICE_MEMORY = "device_memory"
    PEAK_MEMORY = "peak_memory"
    OOM_OBSERVER = "oom_observer"
    MEMORY_SNAPSHOT = "memory_snapshot"
    MEMORY_PAUSE = "memory_pause"
    PINNED_MEMORY = "pinned_memory"
    DEVICE_PROPERTIES = "device_properties"
    DETERMINISTIC = "deterministic"
    DEVICE_PROFILER = "device_profiler"
    DEVICE_ASSERTS = "device_asserts"
    GRAPHS = "graphs"
    IPC = "ipc"
    FORK_AFTER_SELECTION = "fork_after_selection"
    NVML_AFFINITY = "nvml_affinity"
    REQUIRES_CPU_INITIALIZATION = "requires_cpu_initialization"
    STRICT_FP32_LOGITS = "strict_fp32_logits"
    SGLANG_FP8_UTILS = "sglang_fp8_utils"
    CUDA_INT4_EXTENSION = "cuda_int4_extension"
    TRITON_KERNELS = "triton_kernels"

    def __str__(self) -> str:
        return self.value

    @property
    def description(self) -> str:
        """One sentence: what a backend that declares this promises."""
        return CAPABILITY_DETAILS[self].description

    @property
    def probe(self) -> str:
        """One sentence: what proves or refutes it."""
        return CAPABILITY_DETAILS[self].probe

    @property
    def is_hint(self) -> bool:
        """True where no clause can check the answer; it is reported as a claim."""
        return CAPABILITY_DETAILS[self].is_hint

    @property
    def needs_device(self) -> bool:
        """True where answering may initialise the current device (CAP-4)."""
        return CAPABILITY_DETAILS[self].needs_device

    @classmethod
    def parse(cls, name: str | Capability) -> Capability:
        """The member of that name.

        Raises:
            UnknownCapabilityError: the name is outside the set; the message gives the nearest known name (CAP-1).
        """
        if isinstance(name, cls):
            return name
        known = [member.value for member in cls]
        if isinstance(name, str) and name in known:
            return cls(name)
        near = difflib.get_close_matches(str(name).strip().lower(), known, n=1, cutoff=0.0)[0]
        raise UnknownCapabilityError(
            f"unknown capability {name!r}; the nearest known name is {near!r}. Known capabilities: {', '.join(sorted(known))}"
        )


@dataclass(frozen=True)
class CapabilityDetails:
    """What a capability means and how it is probed; see the properties of `Capability`."""

    description: str
    probe: str
    is_hint: bool = False
    needs_device: bool = False


@dataclass(frozen=True)
class CapabilityEvidence:
    """The answer to one probe.

    `supported` is the answer; `evidence` says in one sentence what was looked at and what was found, for a person to read in a report.
    """

    supported: bool
    evidence: str


CAPABILITY_DETAILS: dict[Capability, CapabilityDetails] = {
    Capability.AMP: CapabilityDetails(
        "`torch.autocast` works for the device type.",
        "`torch.amp.is_autocast_available(type)` is true, and a matrix product inside autocast has the asked dtype.",
    ),
    Capability.BF16: CapabilityDetails(
        "The current device computes in bfloat16.",
        "The namespace's `is_bf16_supported()`; without one, a bfloat16 sum on the device.",
        needs_device=True,
    ),
    Capability.FP16: CapabilityDetails(
        "The device computes in float16.",
        "The namespace's declaration; the suite then casts and multiplies in float16.",
    ),
    Capability.STREAMS: CapabilityDetails(
        "Work can be issued on several streams of one device.",
        "`Stream`, `current_stream` and `stream` (or `torch.Stream` and `torch.accelerator.current_stream`) exist and answer.",
    ),
    Capability.EVENTS: CapabilityDetails(
        "Events can be recorded on a stream, waited for and queried.",
        "`Event` exists in the namespace, or `torch.Event` accepts the device type.",
    ),
    Capability.EVENT_TIMING: CapabilityDetails(
        "Timed events measure the time between two points of a stream.",
        "`Event(enable_timing=True)` is accepted; the suite then records two and asks `elapsed_time`.",
    ),
    Capability.RNG: CapabilityDetails(
        "Each device has a random state that can be read, set and seeded.",
        "`get_rng_state`, `set_rng_state`, `manual_seed`, `manual_seed_all` and `initial_seed` exist.",
    ),
    Capability.DEVICE_GENERATOR: CapabilityDetails(
        "`torch.Generator(device=…)` makes a generator of this device.",
        "A generator is constructed for the current device and says that it is on it.",
        needs_device=True,
    ),
    Capability.DEVICE_MEMORY: CapabilityDetails(
        "The device has memory of its own, with counters.",
        "`empty_cache`, `mem_get_info`, `memory_allocated` and `memory_reserved` exist.",
    ),
    Capability.PEAK_MEMORY: CapabilityDetails(
        "The allocator keeps peaks that can be reset.",
        "`max_memory_allocated`, `max_memory_reserved` and `reset_peak_memory_stats` exist.",
    ),
    Capability.OOM_OBSERVER: CapabilityDetails(
        "A function can be called at each out-of-memory error.",
        "The backend's attach function exists (for CUDA `torch._C._cuda_attach_out_of_memory_observer`).",
    ),
    Capability.MEMORY_SNAPSHOT: CapabilityDetails(
        "Allocations can be recorded and dumped.",
        "The memory namespace has `_record_memory_history` and `_snapshot`.",
    ),
    Capability.MEMORY_PAUSE: CapabilityDetails(
        "Physical memory can be given back and taken again at the same addresses.",
        "`torch_memory_saver`, or the backend's own pause and resume functions, import and accept the device.",
    ),
    Capability.PINNED_MEMORY: CapabilityDetails(
        "Host memory can be pinned for this device.",
        "`pin_memory()` of a small CPU tensor succeeds and `is_pinned()` is then true.",
        needs_device=True,
    ),
    Capability.DEVICE_PROPERTIES: CapabilityDetails(
        "Each device has a name and a memory size.",
        "`get_device_properties` exists.",
    ),
    Capability.DETERMINISTIC: CapabilityDetails(
        "`torch.use_deterministic_algorithms(True)` is honoured.",
        "The backend's declaration; the suite then repeats operators bit for bit.",
    ),
    Capability.DEVICE_PROFILER: CapabilityDetails(
        "`torch.profiler` records this device's kernels.",
        "`ProfilerActivity` has the device's member, or PrivateUse1's, among the supported activities.",
    ),
    Capability.DEVICE_ASSERTS: CapabilityDetails(
        "A failed assertion inside a kernel is reported to the host.",
        "The backend's declaration; the suite then makes one fail in a fresh process.",
    ),
    Capability.GRAPHS: CapabilityDetails(
        "Work can be captured into a graph and replayed.",
        "The namespace has a graph class and a capture context (`CUDAGraph`, `graph`).",
    ),
    Capability.IPC: CapabilityDetails(
        "Tensors can be shared with another process.",
        "`torch.multiprocessing` reductions know the device's storage.",
    ),
    Capability.FORK_AFTER_SELECTION: CapabilityDetails(
        "Selecting the backend initialises no runtime, so a process may fork afterwards (SEL-10).",
        "A management library counts the devices; the suite selects, forks and uses the device in the child.",
    ),
    Capability.NVML_AFFINITY: CapabilityDetails(
        "The processor affinity of a device can be read from NVML.",
        "A claim: `pynvml` may be absent where the answer is asked for.",
        is_hint=True,
    ),
    Capability.REQUIRES_CPU_INITIALIZATION: CapabilityDetails(
        "Models are better initialised on the CPU and moved.",
        "A claim: advice to the framework, which no program can refute.",
        is_hint=True,
    ),
    Capability.STRICT_FP32_LOGITS: CapabilityDetails(
        "Logits may be required in full float32 precision.",
        "A claim: advice to the framework, which no program can refute.",
        is_hint=True,
    ),
    Capability.SGLANG_FP8_UTILS: CapabilityDetails(
        "SGLang's fp8 helpers run on this device.",
        "A claim, unless SGLang is installed to try it.",
        is_hint=True,
    ),
    Capability.CUDA_INT4_EXTENSION: CapabilityDetails(
        "The CUDA extension for int4 conversion can be built and run.",
        "A claim, unless the extension is installed to try it.",
        is_hint=True,
    ),
    Capability.TRITON_KERNELS: CapabilityDetails(
        "Triton kernels compile for this device.",
        "A claim, unless Triton is installed to try it.",
        is_hint=True,
    ),
}
