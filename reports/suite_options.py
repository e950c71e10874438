"""What a run's command line may say without making the run worth less.

For: `levels.py`, and `verify`. Options are data: what is not listed here could have changed what ran, and is named. Not for: reading
options for a run (`conformance.options`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

VALUES: dict[str, str] = {  # option of the suite that takes a value: where the report says the same; empty where nowhere
    "--backend": "backend/name",
    "--accelerator": "backend/accelerator",
    "--normalizer": "backend/normalizer",
    "--aligner": "backend/aligner",
    "--effort": "run/effort",
    "--examples": "run/examples",
    "--tier": "run/tier",
    "--fault": "run/fault",
    "--hypothesis-seed": "run/seed",
    "--vendor": "declared/vendor",
    "--product": "declared/product",
    "--devices": "",
    "--ranks": "",
    "--schedule": "",
    "--results": "",
    "--certify": "",
    "--known-failures": "",
    "--sign-key": "",
}
DEFAULTS: dict[
    str, str
] = {  # what the report says where the option is not on the command line, for those that always have the same
    "--accelerator": "",
    "--normalizer": "",
    "--aligner": "",
    "--effort": "default",
    "--tier": "multi-node",
    "--fault": "",
    "--vendor": "",
    "--product": "",
}
SIMULATED_ONLY = ("--schedule", "--fault")
"""Options that the suite refuses for a real device."""
_SELECTING = frozenset({"", "-k", "-m", "--deselect", "--ignore", "--ignore-glob"})
"""Options that take checks away and do nothing else; the empty name is that of files and checks."""
# Of pytest and its plugins: how results are shown, and in how many processes.
_HARMLESS_VALUES = frozenset({
    "--basetemp", "--capture", "--color", "--dist", "--durations", "--durations-min", "--junit-xml", "--junitxml", "--maxprocesses",
    "--max-worker-restart", "--numprocesses", "--show-capture", "--tb", "--timeout", "--tx", "--verbosity", "-n", "-r",
})  # fmt: skip
_HARMLESS_FLAGS = frozenset({
    "--full-trace", "--hypothesis-show-statistics", "--isolate", "--isolate-examples", "--no-fold-skipped", "--no-header", "--no-isolate",
    "--no-showlocals", "--no-shrink", "--no-summary", "--quiet", "--require-device", "--showlocals", "--strict-config", "--strict-markers",
    "--verbose", "-l", "-q", "-s", "-v",
})  # fmt: skip
_HARMLESS_PLUGINS = frozenset({"no:cacheprovider", "no:benchmark", "conformance.plugin", "no:randomly", "no:xdist"})
_FLAG_LETTERS = "vqsl"


@dataclass(frozen=True)
class Option:
    """One option of a command line; `name` is empty for what is no option. `value` is None for flags."""

    name: str
    value: str | None


def read(argv: Sequence[str]) -> Iterator[Option]:
    """The options in order, as pytest would take them apart."""
    rest = deque(argv)
    while rest:
        word = rest.popleft()
        if word == "--":
            yield from (Option("", other) for other in rest)
            return
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            takes_value = name in VALUES or name in _HARMLESS_VALUES
            yield Option(name, value if equals else rest.popleft() if takes_value and rest else None)
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word, rest)
        else:
            yield Option("", word)


def _short(word: str, rest: deque[str]) -> Iterator[Option]:
    """`-vv`, `-n4`, `-n 4`, `-vk expression`: letters without a value, then at most one with one."""
    flags = len(word) - len(word[1:].lstrip(_FLAG_LETTERS))
    yield from (Option(f"-{letter}", None) for letter in word[1:flags])
    if flags < len(word):
        name, value = f"-{word[flags]}", word[flags + 1 :].removeprefix("=")
        takes_value = name in ("-n", "-r", "-p", "-k", "-m", "-c", "-o", "-W")
        yield Option(name, value or (rest.popleft() if takes_value and rest else None))


def is_harmless(option: Option) -> bool:
    """Whether an option leaves what ran and what it found alone, but for what the report says of it itself."""
    if not option.name:
        return _names_the_suite(option.value or "")
    if option.name == "-p":
        return option.value in _HARMLESS_PLUGINS
    return option.name in VALUES or option.name in _HARMLESS_VALUES or option.name in _HARMLESS_FLAGS


def doubtful(argv: Sequence[str], *, left_out: bool) -> list[Option]:
    """The options that could have changed what ran or what it found. `left_out`: the report names the checks that were left out, so that
    options that do no more than that are accounted for."""
    return [option for option in read(argv) if not is_harmless(option) and not (left_out and option.name in _SELECTING)]


def _names_the_suite(word: str) -> bool:
    return word.rstrip("/").rpartition("/")[2] == "conformance"


def shown(option: Option) -> str:
    """The option as one would write it."""
    if not option.name:
        return option.value or ""
    equals = "=" if option.name.startswith("--") else " "
    return option.name if option.value is None else f"{option.name}{equals}{option.value}"
