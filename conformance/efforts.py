"""How hard a run tries: Hypothesis profiles of our own.

For: the number of examples, the seed, and settings that make a run repeatable. Not for: what a check draws.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture import providers

_PROFILE = "accelerator-conformance"
_STORAGE = "HYPOTHESIS_STORAGE_DIRECTORY"


def load_profile(examples: int, *, shrink: bool = True) -> None:
    """Make `examples` examples a property the default of this process, and whether a failing one is made smaller."""
    settings.register_profile(
        _PROFILE,
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal,
        # Explaining reruns a check too often for a device.
        phases=[Phase.explicit, Phase.generate, Phase.target, *([Phase.shrink] if shrink else [])],
        # The backend is made once a run on purpose, and a slow device is no fault of the check.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile(_PROFILE)


def shrinks() -> bool:
    """Whether failing inputs are made smaller in this run."""
    return Phase.shrink in settings.get_profile(_PROFILE).phases


def store_in_temporary_folder() -> ExitStack:
    """Have Hypothesis keep its caches in a temporary folder, not in the user's, unless the environment says where.

    Processes that this one starts use the same folder, so that one that crashes leaves none behind. Close what is returned at the end.
    """
    until_the_end = ExitStack()
    if _STORAGE not in os.environ:
        os.environ[_STORAGE] = until_the_end.enter_context(
            tempfile.TemporaryDirectory(prefix="accelerator-conformance-hypothesis-")
        )
        until_the_end.callback(os.environ.pop, _STORAGE, None)
    set_hypothesis_home_dir(os.environ[_STORAGE])
    return until_the_end


def draw_the_same_everywhere() -> None:
    """Keep Hypothesis from mixing constants out of the source of "local" modules into its draws, from now on in this process.

    Which modules are local depends on how the suite was installed and what else is imported, so one seed would not give the same examples
    on two hosts. Hypothesis has no setting for it; a version without this function mixes nothing in.
    """
    if hasattr(providers, "_get_local_constants"):
        none = providers._local_constants
        providers._get_local_constants = lambda: none


def scale_examples(test: Callable[..., Any], scale: float, *, shrinks: bool = True) -> None:
    """Give one property its share of the examples, at least 1, and no shrinking where it does that itself; nothing for tests without
    Hypothesis."""
    if hasattr(test, "hypothesis") and (scale != 1.0 or not shrinks) and not hasattr(test, "_conformance_scaled"):
        usual = settings()
        phases = tuple(phase for phase in usual.phases if shrinks or phase is not Phase.shrink)
        settings(max_examples=max(1, round(usual.max_examples * scale)), phases=phases)(test)
        test._conformance_scaled = True  # type: ignore[attr-defined]


def new_seed() -> int:
    """A seed for a run that names none."""
    return random.SystemRandom().randrange(2**32)
