"""The report of a run: what `report.json` holds, as frozen typed data.

For: writing, reading and handing on reports; the published schema is generated from these classes (`schema.py`). Not for: gathering a run
(`building.py`), judging it (`levels.py`), or showing it (`rendering/`). Fields without a value are left out of the JSON. Within a version
of the format, nothing is added, renamed or dropped but under `extra`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

FORMAT: Final = "accelerator-conformance-report/1"
"""Names the shape of the document; another shape has another number."""

OutcomeName = Literal[
    "pass",
    "fail",
    "unsupported",
    "waived",
    "known-failure",
    "flaky",
    "not-run",
    "not-checkable",
    "not-yet-checked",
    "harness-error",
]
RequirementName = Literal["MUST", "SHOULD", "MAY"]
SubjectName = Literal["library", "backend", "normalizer", "transport", "aligner"]
TierName = Literal["host", "device", "multi-device", "multi-rank", "multi-node"]
LevelName = Literal["core", "streams", "memory", "distributed", "routed-experts", "full"]
LevelState = Literal["attained", "not-attained", "unsupported", "not-supplied"]
StatusName = Literal["simulated", "preview", "hardware"]
TreeState = Literal["clean", "dirty", "unknown"]
Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
ClauseId = Annotated[str, Field(pattern="^[A-Z]{2,8}-[1-9][0-9]{0,4}$")]
Instant = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


class Model(BaseModel):
    """Base of all parts: frozen, exact types, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Cap(Model):
    """One reason why a run certifies less than hardware."""

    id: Literal[
        "simulated",
        "fault",
        "interrupted",
        "no-device",
        "dirty-tree",
        "unknown-tree",
        "effort",
        "deselected",
        "options",
        "missing-tier",
    ]
    text: str
    """In words, as on the first line of every rendered form."""


class LevelResult(Model):
    """One level: what a reader may rely on together."""

    name: LevelName
    state: LevelState
    areas: tuple[str, ...]
    """The areas of the contract that it covers."""
    passed: Count
    """MUST clauses of the supplied subjects that passed."""
    unsupported: tuple[ClauseId, ...]
    """MUST clauses that are unsupported, their capability denied with evidence."""
    missing: tuple[ClauseId, ...]
    """MUST clauses that stand in its way."""


class Verdict(Model):
    """What the run is worth, computed from the rest of the document (`docs/levels.md`)."""

    headline: str
    """The first line: status, levels, and every cap."""
    status: StatusName
    certified: tuple[LevelName, ...]
    """The levels attained, where the status is hardware; else empty."""
    caps: tuple[Cap, ...]
    levels: tuple[LevelResult, ...]
    should_not_met: tuple[ClauseId, ...]
    """SHOULD clauses of the supplied subjects that did not pass and are not unsupported."""


class Declared(Model):
    """What the vendor says of itself; nothing checks it."""

    vendor: str
    product: str


class Run(Model):
    """How the suite was run, and how far it came."""

    started: Instant
    seconds: Annotated[float, Field(ge=0)]
    complete: bool
    """Whether every check that was collected has been reported."""
    ending: str
    """How the run ended, in words."""
    argv: tuple[str, ...]
    """The options of the run: those of the configuration and of PYTEST_ADDOPTS first, as pytest puts them together."""
    effort: str
    examples: Count
    """Examples a property."""
    seed: Count
    tier: TierName
    """The highest tier that was asked for."""
    fault: str
    """The fault in force; empty without one."""
    checks: Count
    """Checks that the suite has for this run."""
    reported: Count
    """Checks of which the run has a result."""
    deselected: tuple[str, ...]
    """Checks that the command line left out."""


class BackendFacts(Model):
    """The code under test."""

    name: str
    simulated: bool
    supplied: tuple[SubjectName, ...]
    """The subjects whose code is the vendor's; levels count their clauses only."""
    accelerator: str
    """`module:factory` of --accelerator; empty without; so for the next two."""
    normalizer: str
    aligner: str
    adapter: str
    """The adapter's class, `module.Class`."""
    module_digest: Sha256 | None = None
    """Of the source file of that class."""
    distribution: str
    """The package that brought it, with its version; empty where none did."""
    device_type: str
    no_device_reason: str | None = None
    """Why no device could be used."""
    configuration: dict[str, JsonValue]
    """What the adapter declares of itself."""
    configuration_digest: Sha256


class SuiteFacts(Model):
    """The code that did the testing."""

    version: str
    contract_revision: str
    contract_digest: Sha256
    digests: dict[str, Sha256]
    """By package of this project: of all its source files."""
    commit: str
    """The version control's; empty where unknown."""
    tree: TreeState
    """Whether the code is as it was published or committed."""
    changed: tuple[str, ...]
    """Files that are not, at most twenty."""


class DeviceFacts(Model):
    """One device as queried; what the runtime does not tell is left out."""

    index: Count
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    memory: Count | None = None
    """Bytes."""


class VisibleDevicesLayer(Model):
    """One variable that decides which devices a process sees."""

    variable: str
    value: str | None = None
    """Left out where it is not set."""
    decided: bool


class HostFacts(Model):
    """The machine, as queried."""

    devices: tuple[DeviceFacts, ...]
    driver: str
    """Its version; empty where it could not be asked; so for the runtime."""
    runtime: str
    torch: str
    torch_build: str
    """PyTorch's own account of how it was built."""
    os: str
    kernel: str
    machine: str
    python: str
    visible_devices: tuple[VisibleDevicesLayer, ...]
    libraries: dict[str, str]
    """Versions of the packages that took part."""


class CapabilityFact(Model):
    """One capability as probed."""

    name: str
    supported: bool
    evidence: str


class ExceptionEntry(Model):
    """One entry of --known-failures."""

    clause: ClauseId
    kind: Literal["known-failure", "waiver"]
    device: str
    """A shell pattern over device names; `*` for all."""
    reason: str
    url: str
    expires: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]


class Exceptions(Model):
    """What --known-failures said: shown, counted, never hidden."""

    digest: Sha256
    """Of the file."""
    entries: tuple[ExceptionEntry, ...]
    problems: tuple[str, ...]
    """Entries that are wrong: passed, matched nothing, ambiguous, expired. Each makes the run fail."""


class Lane(Model):
    """One queue of a timeline: the host, or a stream."""

    title: str
    device: Count | None = None
    """Left out for the host."""


class Span(Model):
    """Something that took place on a lane."""

    lane: Count
    """By its place in the list of lanes."""
    name: str
    kind: Literal["work", "record", "wait"]
    start: Count
    """In nanoseconds, or in thousandths of a step; so for the end."""
    end: Count
    ran: Count | None = None
    """Its place in the order in which work ran, where that is known."""


class Edge(Model):
    """An order between two moments on two lanes."""

    from_lane: Count
    start: Count
    lane: Count
    end: Count
    missing: bool
    """Whether this order was due and had no effect."""


class Timeline(Model):
    """Who was given what, and who waits for whom; drawn in the HTML, and there as a Chrome trace."""

    in_steps: bool
    """Whether times are thousandths of a step of the program instead of nanoseconds."""
    lanes: tuple[Lane, ...]
    spans: tuple[Span, ...]
    edges: tuple[Edge, ...]


class LayoutPicture(Model):
    """The parallel layout of a failing example; drawn in the HTML as who owns which token. Fields as of `ParallelLayout`."""

    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)]
    context_parallel_size: Annotated[int, Field(ge=1, le=64)]
    data_pad_size_multiplier: Annotated[int, Field(ge=1, le=1 << 20)]
    sequence_parallel: bool
    allgather_context_parallel: bool
    sequences: Annotated[tuple[Annotated[int, Field(ge=1, le=1 << 24)], ...], Field(max_length=64)]


class Failure(Model):
    """What shows the failure."""

    program: str
    """The smallest failing input, as an explicit program or call."""
    document: JsonValue = None
    """The same for --replay-program, where the check runs programs."""
    replay: str
    """One line that runs the check again with the same examples."""
    timeline: Timeline | None = None
    layout: LayoutPicture | None = None


class CheckResult(Model):
    """One check of the suite in this run."""

    name: str
    tier: TierName
    outcome: OutcomeName
    seconds: Annotated[float, Field(ge=0)]
    examples_run: Count
    """0 for checks that are no properties."""
    examples_discarded: Count
    said: str | None = None
    """The failure's message, the evidence of "unsupported", or the reason of "not-run" and "not-checkable"."""
    failure: Failure | None = None


class ClauseResult(Model):
    """One clause in this run."""

    id: ClauseId
    level: RequirementName
    subject: SubjectName
    tiers: tuple[TierName, ...]
    capability: str | None = None
    """The capability that switches it on."""
    outcome: OutcomeName
    """From its checks and the exceptions, computed."""
    checks: tuple[str, ...]
    """Names of the checks that cover it."""
    text: str
    """What the contract says."""


class Area(Model):
    """A chapter of the contract: the clauses whose ids begin with its name."""

    name: str
    title: str


class Report(Model):
    """One run of the suite."""

    format: Literal["accelerator-conformance-report/1"]
    renderer: str
    """The version of the renderer; the same version makes every file of the package again, byte for byte."""
    verdict: Verdict
    declared: Declared
    run: Run
    backend: BackendFacts
    suite: SuiteFacts
    host: HostFacts
    capabilities: tuple[CapabilityFact, ...]
    exceptions: Exceptions | None = None
    counts: dict[OutcomeName, Count]
    """Clauses by outcome; outcomes that do not occur are left out."""
    areas: tuple[Area, ...]
    clauses: tuple[ClauseResult, ...]
    """Every clause of the contract's revision, once, in its order."""
    checks: tuple[CheckResult, ...]
    """Every check, once, by name."""
    extra: dict[str, JsonValue]
    """The one place for fields that this version does not know."""

    def to_bytes(self) -> bytes:
        """`report.json`, ending in a newline; equal reports give equal bytes."""
        return self.model_dump_json(indent=1, exclude_none=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report in a file that this project wrote, or that has been checked.

        Raises:
            pydantic.ValidationError: it is no report of this format.
        """
        return cls.model_validate_json(data)
