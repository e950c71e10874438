"""How verify reads the command line of a run."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.options import add_options
from reports.pytest_plugin import pytest_addoption
from reports.suite_options import VALUES, Option, doubtful, is_harmless, read, shown


class _Parser:
    """Stands in for pytest's: gathers the names of options, and whether they take a value."""

    def __init__(self) -> None:
        self.found: dict[str, bool] = {}

    def getgroup(self, *_: str) -> _Parser:
        return self

    def addoption(self, *names: str, **settings: Any) -> None:
        self.found |= dict.fromkeys(names, settings.get("action", "store") == "store")


def test_every_option_of_the_suite_is_known() -> None:
    parser: Any = _Parser()
    add_options(parser)
    pytest_addoption(parser)
    with_value = {name for name, takes_value in parser.found.items() if takes_value}
    assert with_value - {"--replay-program"} == set(VALUES) - {"--hypothesis-seed"}
    flags = [name for name, takes_value in parser.found.items() if not takes_value]
    assert all(is_harmless(Option(name, None)) for name in flags)
    assert not is_harmless(Option("--replay-program", "x")), "runs one program and no checks"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--backend=x --tier host", [("--backend", "x"), ("--tier", "host")]),
        ("-vvk DEV", [("-v", None), ("-v", None), ("-k", "DEV")]),
        ("-kDEV", [("-k", "DEV")]),
        ("-n4 -n 4", [("-n", "4"), ("-n", "4")]),
        ("-x", [("-x", None)]),
        ("--unknown value", [("--unknown", None), ("", "value")]),
        ("a -- --k", [("", "a"), ("", "--k")]),
        ("--tier", [("--tier", None)]),
        ("-k", [("-k", None)]),
        ("-", [("", "-")]),
        ("", []),
    ],
)
def test_options_are_taken_apart_as_pytest_does(words: str, options: list[tuple[str, str | None]]) -> None:
    assert list(read(words.split())) == [Option(*option) for option in options]


@pytest.mark.parametrize(
    "words", [["-v"] * 400_000, ["-" + "v" * 2_000_000], ["--tier", "host"] * 200_000, ["x"] * 400_000], ids=range(4)
)
def test_long_command_lines_cost_no_more_than_their_length(words: list[str]) -> None:
    """A quadratic reader would not come to an end here."""
    assert sum(1 for _ in read(words)) >= len(words) // 2


@pytest.mark.parametrize(
    ("line", "left_out", "expected"),
    [
        ("conformance --backend=x -q --strict-markers -p no:xdist", False, []),
        ("-k DEV", False, ["-k DEV"]),
        ("-k DEV conformance/test_devices.py --deselect=x", True, []),
        ("-k DEV -x -p mine", True, ["-x", "-p mine"]),
        ("--reruns=3", True, ["--reruns=3"]),
    ],
)
def test_what_could_have_changed_a_run_is_named(line: str, left_out: bool, expected: list[str]) -> None:
    assert [shown(option) for option in doubtful(line.split(), left_out=left_out)] == expected
