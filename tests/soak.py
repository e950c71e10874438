"""Runs part of the suite many times, each time with another seed, and stops at the first run that does not pass or leaves a file behind.

For: `tox -e soak`, which looks for what fails once in a hundred times. Usage: `python tests/soak.py RUNS [option of the suite]...`, with
the seeds from 0 on; in place of RUNS, `50-99` takes those seeds, so that two can share the work.
The numbers that were really run are in docs/soak.md.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run; the exit code of the last run."""
    first, dash, last = arguments[0].rpartition("-")
    seeds = range(int(first), int(last) + 1) if dash else range(int(last))
    options, runs = arguments[1:], len(seeds)
    started, code = time.monotonic(), 0
    for number, seed in enumerate(seeds, start=1):
        command = [sys.executable, "-m", "conformance", *options, f"--hypothesis-seed={seed}", "-q"]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TMPDIR": folder}
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
            left = [path.name for path in Path(folder).iterdir() if not path.name.startswith("pytest-of-")]  # pytest keeps its own
        code = run.returncode or int(bool(left))
        if code != 0:
            sys.stdout.write(run.stdout)
            sys.stdout.write(f"run {number} of {runs} failed, and left {left or 'no file'}: {shlex.join(command)}\n")
            return code
        now = time.monotonic()
        sys.stdout.write(f"{number} of {runs} runs passed, this one in {now - began:.0f} s; {now - started:.0f} s in all\n")
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
