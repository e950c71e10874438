"""`python -m conformance …`: the suite from any folder, with pytest's options and ours.

For: installed packages and launchers. A check is named as in the results (`conformance/test_devices.py::test_…`, or the file alone);
without one, all run.
Leaves no files in the current folder and reads no pytest configuration from it. Not for: a checkout's other tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conformance.options import GivenOptions
from conformance.ranks.followers import follow
from conformance.ranks.launch import launch_of
from conformance.ranks.torchrun_pool import LaunchedRun

_PACKAGE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Run the checks beside this file, or under torchrun take part as one of its ranks; the exit code is pytest's."""
    launch = launch_of()
    if launch is None:
        return run_pytest(arguments, [])
    if launch.rank != 0:
        return follow(launch)
    launched = LaunchedRun(launch)
    code = 1
    try:
        code = run_pytest(arguments, [launched])
    finally:
        launched.close(code or int(bool(launched.lost)))
    return code or int(bool(launched.lost))


def run_pytest(arguments: list[str] | None, plugins: list[object]) -> int:
    """Run pytest on the checks; its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    checks = [str(_PACKAGE.parent / argument) for argument in given if _names_checks(argument)]
    options = [argument for argument in given if not _names_checks(argument)]
    ours = [
        "-c",
        os.devnull,
        f"--rootdir={_PACKAGE.parent}",
        "-p",
        "conformance.plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
    ]
    return int(pytest.main([*ours, *options, *(checks or [str(_PACKAGE)])], plugins=[*plugins, GivenOptions(tuple(given))]))


def _names_checks(argument: str) -> bool:
    return "::" in argument or argument.endswith(".py")


if __name__ == "__main__":
    sys.exit(main())
