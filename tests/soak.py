"""Runs part of the suite many times in a row, each time with another seed, and stops at the first run that does not pass.

For: `tox -e soak`, which looks for what fails once in a hundred times. Usage: `python tests/soak.py RUNS [option of the suite]...`.
The numbers that were really run are in docs/soak.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time


def main(arguments: list[str]) -> int:
    """Run; the exit code of the last run."""
    runs, options = int(arguments[0]), arguments[1:]
    started, code = time.monotonic(), 0
    for seed in range(runs):
        command = [sys.executable, "-m", "conformance", *options, f"--hypothesis-seed={seed}", "-q"]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        code = run.returncode
        if code != 0:
            sys.stdout.write(run.stdout)
            sys.stdout.write(f"run {seed + 1} of {runs} failed: {' '.join(command)}\n")
            return code
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        sys.stdout.write(
            f"{seed + 1} of {runs} runs passed; {time.monotonic() - started:.0f} s, of which {used.ru_utime + used.ru_stime:.0f} s of CPU "
            "time\n"
        )
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
