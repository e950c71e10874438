"""A stream program as a value, with its JSON document and its listing.

For: reading and writing the document that `--replay-program` takes, with errors that say what is wrong where. Not for: what a program means
(`models/`), drawing one (`stream_drafts.py`) or running it (`stream_executor.py`).

    {"program": "streams/1", "streams": [0, 0, 1], "default_streams": [0],
     "steps": [{"do": "allocate", "buffer": "a", "stream": 0, "value": 3}, …], "schedule": {"name": "seeded", "seed": 7}}

`streams` holds the device of each stream; those listed in `default_streams` are their device's default stream. Fields of a step that have
a default may be left out. `schedule` is the simulated machine's, where the program ran on one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from conformance.errors import ProgramError
from conformance.programs.printing import PrintsAsCode
from conformance.programs.stream_buffers import Buffers
from conformance.programs.stream_steps import KINDS, Step

FORMAT = "streams/1"
MAX_STEPS = 40
MAX_STREAMS = 8
MAX_VALUE = 1 << 20
"""With at most `MAX_STEPS` kernels, each of which at most doubles a value, no element leaves 64 bits."""


@dataclass(frozen=True)
class ScheduleChoice:
    """The order in which a simulated machine ran a program: a schedule's name and its seed."""

    name: str
    seed: int

    def __str__(self) -> str:
        return f"schedule {self.name}, seed {self.seed}"


@dataclass(frozen=True, repr=False)
class StreamProgram(PrintsAsCode):
    """Steps that one host thread takes in order. `streams[i]` is the device of stream i; `default_streams` are those that are their
    device's default stream."""

    streams: tuple[int, ...]
    steps: tuple[Step, ...]
    default_streams: tuple[int, ...] = ()
    schedule: ScheduleChoice | None = None

    @property
    def devices(self) -> int:
        """The number of devices that it needs."""
        named = [step.device for step in self.steps if hasattr(step, "device")]
        return 1 + max((*self.streams, *named), default=0)

    def __repr__(self) -> str:
        return "\n" + "\n".join(self.listing())

    def listing(self) -> list[str]:
        """One line a step, numbered, below a line that places the streams."""
        return [self.placing(), *(f"{number:3}  {step}" for number, step in enumerate(self.steps))]

    def placing(self) -> str:
        """One line: which stream is on which device."""
        places = (
            f"s{stream} on device {device}{' (its default)' if stream in self.default_streams else ''}"
            for stream, device in enumerate(self.streams)
        )
        return "; ".join(places)

    def to_document(self) -> dict[str, Any]:
        """The JSON document as plain data."""
        document: dict[str, Any] = {"program": FORMAT, "streams": list(self.streams)}
        if self.default_streams:
            document["default_streams"] = list(self.default_streams)
        document["steps"] = [_step_data(step) for step in self.steps]
        if self.schedule is not None:
            document["schedule"] = {"name": self.schedule.name, "seed": self.schedule.seed}
        return document

    def to_json(self) -> str:
        """The document in one line."""
        return json.dumps(self.to_document(), separators=(", ", ": "))

    @classmethod
    def from_json(cls, text: str) -> StreamProgram:
        """The program of a document.

        Raises:
            ProgramError: it is no JSON, or no program; the text says what is wrong where.
        """
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise ProgramError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: object) -> StreamProgram:
        """As `from_json`, from plain data."""
        top = _mapping("the document", document, required=("program", "streams", "steps"), optional=("default_streams", "schedule"))
        if top["program"] != FORMAT:
            raise ProgramError(f"program: {top['program']!r} is not a format that is known here; write {FORMAT!r}")
        streams = tuple(_integer(f"streams[{at}]", device, 0, 63) for at, device in enumerate(_list("streams", top["streams"])))
        if not 1 <= len(streams) <= MAX_STREAMS:
            raise ProgramError(f"streams: {len(streams)} streams; write the device of 1 to {MAX_STREAMS}")
        defaults = tuple(
            _integer(f"default_streams[{at}]", stream, 0, len(streams) - 1)
            for at, stream in enumerate(_list("default_streams", top.get("default_streams", [])))
        )
        if len({streams[stream] for stream in defaults}) < len(defaults):
            raise ProgramError("default_streams: two of them are on one device, which has one default stream")
        steps = _list("steps", top["steps"])
        if len(steps) > MAX_STEPS:
            raise ProgramError(f"steps: {len(steps)} steps; at most {MAX_STEPS} can be run")
        program = cls(streams, tuple(_read_step(f"steps[{at}]", step) for at, step in enumerate(steps)), defaults)
        buffers = Buffers(streams)
        for at, step in enumerate(program.steps):
            buffers.apply(step, f"steps[{at}]")
        schedule = _read_schedule(top.get("schedule"))
        return cls(program.streams, program.steps, defaults, schedule)


def _step_data(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {"do": step.do}
    for field in fields(step):
        value = getattr(step, field.name)
        if field.default is MISSING or value != field.default:
            data[field.name] = value
    return data


def _read_step(where: str, data: object) -> Step:
    if not isinstance(data, Mapping) or not isinstance(data.get("do"), str) or data["do"] not in KINDS:
        found = data.get("do") if isinstance(data, Mapping) else data
        raise ProgramError(f"{where}.do: {found!r} is not a kind of step; write one of {', '.join(KINDS)}")
    kind = KINDS[data["do"]]
    required = tuple(field.name for field in fields(kind) if field.default is MISSING)
    optional = tuple(field.name for field in fields(kind) if field.default is not MISSING)
    values = _mapping(where, {name: value for name, value in data.items() if name != "do"}, required, optional)
    for field in fields(kind):
        if field.name in values:
            _check_type(f"{where}.{field.name}", values[field.name], str(field.type))
    step: Step = kind(**values)
    return step


def _check_type(where: str, value: object, wanted: str) -> None:
    if value is None and wanted.endswith("| None"):
        return
    plain = wanted.partition(" ")[0]
    if plain == "str":
        if not isinstance(value, str) or not value.isidentifier() or len(value) > 16:
            raise ProgramError(f"{where}: {value!r} is not a name of at most 16 letters, digits and underscores")
    elif plain == "bool":
        if not isinstance(value, bool):
            raise ProgramError(f"{where}: {value!r} is neither true nor false")
    else:
        _integer(where, value, -MAX_VALUE if where.endswith("value") else 0, MAX_VALUE)


def _read_schedule(data: object) -> ScheduleChoice | None:
    if data is None:
        return None
    values = _mapping("schedule", data, ("name", "seed"), ())
    if not isinstance(values["name"], str):
        raise ProgramError(f"schedule.name: {values['name']!r} is not a schedule's name")
    return ScheduleChoice(values["name"], _integer("schedule.seed", values["seed"], 0, (1 << 64) - 1))


def _mapping(where: str, data: object, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ProgramError(f"{where}: {data!r} is not an object with {', '.join(required)}")
    missing = [name for name in required if name not in data]
    unknown = [str(name) for name in data if name not in (*required, *optional)]
    if missing:
        raise ProgramError(f"{where}: {', '.join(missing)} missing; it needs {', '.join(required)}")
    if unknown:
        raise ProgramError(f"{where}: {', '.join(unknown)} unknown; it may have {', '.join((*required, *optional))}")
    return dict(data)


def _list(where: str, data: object) -> list[object]:
    if not isinstance(data, list):
        raise ProgramError(f"{where}: {data!r} is not a list")
    return data


def _integer(where: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ProgramError(f"{where}: {value!r} is not a whole number from {least} to {most}")
    return value
