"""`python -m conformance …`: the suite from any folder, with pytest's options and ours.

For: installed packages and launchers. Leaves no files in the current folder. Not for: a checkout's other tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def main() -> int:
    """Run the checks beside this file; the exit code is pytest's."""
    here = Path(__file__).parent
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-") and Path(argument).exists()]
    targets = [] if any("::" in argument for argument in sys.argv[1:]) or names else [str(here)]
    return int(pytest.main(["-p", "conformance.plugin", "-p", "no:cacheprovider", *sys.argv[1:], *targets]))


if __name__ == "__main__":
    sys.exit(main())
