"""How each vendor's driver reads its visible-devices variables, as data with its source (VIS-17).

For: everything in which vendors differ. Not for: reading a value (`visible_devices_lists.py`), composing variables and
resolving ids (`visible_devices.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NumberSyntax = Literal["leading digits", "digits", "canonical decimal", "c integer"]
"""What counts as a device number:

- `leading digits`: an optional sign and digits at the start, whatever follows (`1gpu2` is 1, `-0` is 0), as PyTorch reads
  CUDA's list;
- `digits`: ASCII digits and nothing else;
- `canonical decimal`: as C++ prints it, so no sign, space or leading zero;
- `c integer`: as `strtol(text, &end, 0)` reads it with nothing left over: sign, octal and hexadecimal included.
"""


@dataclass(frozen=True)
class VariableSyntax:
    """How one variable is read.

    `name`: the environment variable. `numbers`: see `NumberSyntax`. `trims`: whether white space around an entry is dropped.
    `uuid_prefixes`: what a UUID entry starts with. `bare_uuid_length`: where UUIDs have no prefix, the length from which a
    value with a `-` in it is a list of UUIDs (0: none). `bare_uuids`: whether a full UUID may also lack its prefix. `kinds`:
    `first` where the first entry fixes whether the list holds numbers or UUIDs, else `mixed`. `ignores_case`: whether UUIDs
    compare without regard to case. `empty`: what a set but empty value means: no device, the `next` variable decides, or
    `every` device. `invalid`: whether an invalid entry `ends` the list or is `skipped`. `duplicates`: whether a repeated device
    `voids` the list, `ends` it, or is `ignored`. `order`: the `list`'s own, the `driver`'s whatever the list says, or
    `ascending`, where any other list shows nothing. `sentinels`: values that batch systems write for "no device". `stops_at`:
    `foreign` where reading stops for good at the first character that is neither a digit nor a comma. `sub_devices`: whether
    `0.1` names a part of device 0. `mig_limit`: how many MIG devices a process can see (0: no limit). `selector`: the backend
    before the colon where values are `backend:devices` terms, else empty. `hide_all`: the value that hides every device, or
    None where there is none to rely on.
    """

    name: str
    numbers: NumberSyntax = "leading digits"
    trims: bool = True
    uuid_prefixes: tuple[str, ...] = ()
    bare_uuid_length: int = 0
    bare_uuids: bool = False
    kinds: Literal["first", "mixed"] = "first"
    ignores_case: bool = False
    empty: Literal["none", "next", "every"] = "none"
    invalid: Literal["ends", "skipped"] = "ends"
    duplicates: Literal["voids", "ends", "ignored"] = "voids"
    order: Literal["list", "driver", "ascending"] = "list"
    sentinels: tuple[str, ...] = ()
    stops_at: Literal["", "foreign"] = ""
    sub_devices: bool = False
    mig_limit: int = 0
    selector: str = ""
    hide_all: str | None = ""


@dataclass(frozen=True)
class VisibleDevicesGrammar:
    """How one vendor's driver decides which devices a process sees.

    `vendor`: the key in `GRAMMARS`. `layers`: in the driver's order; each layer chooses among the devices that the one before
    left, and holds its variables in precedence (the first that is set decides). `primary_variable`: the one that users set
    first, "" where there is none. `container_variables`: read by container runtimes only; named in a diagnosis, never obeyed
    (B27). `source`: where each rule is written down, and where sources differ.
    """

    vendor: str
    layers: tuple[tuple[VariableSyntax, ...], ...]
    primary_variable: str
    source: str
    container_variables: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable that the driver reads, in the order in which it looks at them."""
        return tuple(syntax.name for layer in self.layers for syntax in layer)

    def syntax(self, variable: str) -> VariableSyntax:
        """The syntax of one of `variables`.

        Raises:
            KeyError: the driver does not read that variable.
        """
        for layer in self.layers:
            for syntax in layer:
                if syntax.name == variable:
                    return syntax
        raise KeyError(f"{variable!r} is not read by the {self.vendor} driver; it reads {', '.join(self.variables) or 'none'}")


def _cuda_like(name: str, *, bare_uuids: bool = False) -> VariableSyntax:
    return VariableSyntax(name, uuid_prefixes=("GPU-", "MIG-"), bare_uuids=bare_uuids, sentinels=("NoDevFiles",), mig_limit=1)


def _hip(name: str, empty: Literal["next", "every"]) -> VariableSyntax:
    return VariableSyntax(
        name,
        numbers="canonical decimal",
        trims=False,
        uuid_prefixes=("GPU-",),
        kinds="mixed",
        empty=empty,
        duplicates="ignored",
        hide_all="-1",
    )


NO_VARIABLE = VisibleDevicesGrammar(
    vendor="none", layers=(), primary_variable="", source="Devices without a visible-devices variable, the CPU among them."
)
"""For devices that no variable hides: every device is visible and a physical id is the local id."""

GRAMMARS: dict[str, VisibleDevicesGrammar] = {
    "cuda": VisibleDevicesGrammar(
        vendor="cuda",
        layers=((_cuda_like("CUDA_VISIBLE_DEVICES"),),),
        primary_variable="CUDA_VISIBLE_DEVICES",
        container_variables=("NVIDIA_VISIBLE_DEVICES",),
        source=(
            "NVIDIA CUDA Programming Guide, CUDA environment variables "
            "(docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html): unset is every device, "
            "empty is none, order is kept, an invalid index hides itself and all that follow, UUIDs may be shortened while they "
            "are unique. MIG user guide: a process enumerates one MIG device (field case B06). What the guide leaves open is "
            "read as PyTorch does (torch/cuda/__init__.py, _parse_visible_devices): numbers by their leading digits (1gpu2, +3, "
            "-0, and Unicode's decimal digits, which the driver's strtoul would not take), Python's white space trimmed around "
            "numbers and not around UUIDs, the first characters of the value (GPU- or MIG-) fix the kind, duplicates void the "
            "list. Differences: where PyTorch raises (a lone sign, ², more than 4300 digits) the entry is invalid here; PyTorch "
            "looks for duplicate texts before it looks for unknown devices, so a duplicate after an unknown UUID or a number "
            "past the last device voids its list, while here the list has ended before it (VIS-2, VIS-3). NoDevFiles is what "
            "SLURM writes (B33)."
        ),
    ),
    "musa": VisibleDevicesGrammar(
        vendor="musa",
        layers=((_cuda_like("MUSA_VISIBLE_DEVICES", bare_uuids=True),),),
        primary_variable="MUSA_VISIBLE_DEVICES",
        source=(
            "The MUSA runtime models its interface on CUDA's, and torch_musa uses MUSA_VISIBLE_DEVICES where torch.cuda uses "
            "CUDA_VISIBLE_DEVICES (github.com/MooreThreads/torch_musa). VIS-1 fixes that empty is none. No public document of "
            "the vendor spells out the rest; CUDA's grammar is assumed, see there. The vendor's management library writes UUIDs "
            "without a prefix (github.com/yeahdongcn/mthreads-ml-py, README), so a full UUID is taken with GPU- and without."
        ),
    ),
    "rocm": VisibleDevicesGrammar(
        vendor="rocm",
        layers=(
            (
                VariableSyntax(
                    "ROCR_VISIBLE_DEVICES",
                    numbers="c integer",
                    uuid_prefixes=("GPU-",),
                    kinds="mixed",
                    ignores_case=True,
                    duplicates="ends",
                ),
            ),
            (_hip("HIP_VISIBLE_DEVICES", empty="next"), _hip("CUDA_VISIBLE_DEVICES", empty="every")),
        ),
        primary_variable="HIP_VISIBLE_DEVICES",
        source=(
            "AMD, GPU isolation techniques (rocm.docs.amd.com, reference/system-optimization/gpu-isolation). "
            "ROCR_VISIBLE_DEVICES: ROCR-Runtime, amd_filter_device.cpp: entries trimmed and upper-cased, strtol with base 0, "
            "numbers and UUIDs may be mixed, an invalid, ambiguous or repeated entry ends the list, set but empty is no device. "
            "HIP_VISIBLE_DEVICES: clr, rocdevice.cpp, Device::init: empty falls to CUDA_VISIBLE_DEVICES, and both empty filter "
            "nothing; a number must be written as C++ prints it, an invalid entry ends the list, a repeated one is ignored; it "
            "counts among the devices that ROCr left (field case B17). Difference: PyTorch's own reading "
            "(_parse_visible_devices with torch.version.hip) voids the list on duplicates and takes a set but empty "
            "HIP_VISIBLE_DEVICES as no device."
        ),
    ),
    "npu": VisibleDevicesGrammar(
        vendor="npu",
        layers=(
            (
                VariableSyntax(
                    "ASCEND_RT_VISIBLE_DEVICES",
                    numbers="digits",
                    trims=False,
                    order="ascending",
                    stops_at="foreign",
                    duplicates="voids",
                ),
            ),
        ),
        primary_variable="ASCEND_RT_VISIBLE_DEVICES",
        container_variables=("ASCEND_VISIBLE_DEVICES",),
        source=(
            "Huawei CANN, environment variable reference, ASCEND_RT_VISIBLE_DEVICES (hiascend.com, "
            "maintenref/envvar/envref_07_0028): only digits and commas; from the first other character (a space included) or "
            "invalid id on nothing is read; ids must ascend. VIS-17 fixes that a list that does not ascend shows no device; a "
            "repeated id does not ascend. There are no UUIDs. What an empty value means is not documented; it is read as a list "
            "without ids. ASCEND_VISIBLE_DEVICES is the container runtime's (B27)."
        ),
    ),
    "xpu": VisibleDevicesGrammar(
        vendor="xpu",
        layers=(
            (
                VariableSyntax(
                    "ZE_AFFINITY_MASK",
                    numbers="digits",
                    trims=False,
                    empty="every",
                    invalid="skipped",
                    duplicates="ignored",
                    order="driver",
                    sub_devices=True,
                    hide_all=None,
                ),
            ),
            (
                VariableSyntax(
                    "ONEAPI_DEVICE_SELECTOR",
                    numbers="digits",
                    trims=False,
                    empty="every",
                    invalid="skipped",
                    duplicates="ignored",
                    order="driver",
                    sub_devices=True,
                    selector="level_zero",
                    hide_all=None,
                ),
            ),
        ),
        primary_variable="ZE_AFFINITY_MASK",
        source=(
            "Level Zero specification, core programming guide, affinity mask, and intel/compute-runtime (ExecutionEnvironment::"
            "parseAffinityMask): comma-separated numbers or number.sub-device, a set and not a sequence (order and repetition "
            "are ignored), numbers past the last device are skipped, an empty value masks nothing; several sub-devices of one "
            "device show as that one device (oneapi-src/level-zero issue 86). ONEAPI_DEVICE_SELECTOR: intel/llvm, "
            "sycl/doc/EnvironmentVariables.md: terms backend:devices joined by semicolons, letter case ignored, counting among "
            "the devices that the mask left; a value that does not parse stops the runtime (B23); selected sub-devices show as "
            "devices of their own (intel/llvm pull request 7167). Terms for other backends than level_zero and * select nothing "
            "that PyTorch uses. Negated terms and sub-device wildcards are refused as not read here. What an empty selector "
            "means is not documented; it is read as unset."
        ),
    ),
    "mlu": VisibleDevicesGrammar(
        vendor="mlu",
        layers=(
            tuple(
                VariableSyntax(name, numbers="digits", bare_uuid_length=36)
                for name in ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
            ),
        ),
        primary_variable="MLU_VISIBLE_DEVICES",
        source=(
            "Cambricon torch_mlu, torch_mlu/mlu/__init__.py, _parse_visible_devices, written to agree with the CNRT runtime: "
            "the first of CN_VISIBLE_DEVICES, MLU_VISIBLE_DEVICES and (newer releases) CUDA_VISIBLE_DEVICES that is set "
            "decides, even if it is empty; an entry is a number only if it is digits throughout, white space around it apart; a "
            "value of at least 36 characters with a dash is a list of UUIDs; duplicates void the list, an invalid entry ends it "
            "(vectors: field case B09)."
        ),
    ),
}
"""Each vendor's grammar by the name that its backend is registered under."""
