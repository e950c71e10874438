"""What a check is handed as `backend`.

For: the adapter, its devices and child processes in which the same backend can be made again. Not for: finding the backend
(`backends.py`) or deciding whether a check may run (`gating.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from conformance.aligners import Aligner, load_aligner
from conformance.backends import USUAL_SCHEDULE, BackendChoice, PreparedBackend, load_callable
from conformance.children import ChildProcesses
from conformance.errors import ConformanceError, OptionError
from conformance.ranks.pool import RankPool
from conformance.simulated import machine_here

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator

_NO_CHANGES: Mapping[str, str | None] = MappingProxyType({})


class BackendUnderTest:
    """One backend for one run. `effort` is how hard the run tries, a key of `effort_sizes.EXAMPLES`."""

    def __init__(
        self,
        choice: BackendChoice,
        prepared: PreparedBackend,
        children: ChildProcesses,
        aligner: str = "",
        normalizer: str = "",
        effort: str = "default",
        make_ranks: Callable[[], RankPool] | None = None,
    ) -> None:
        self.effort = effort
        self._choice = choice
        self._make_ranks = make_ranks
        self._prepared = prepared
        self._children = children
        self._aligner = aligner
        self._normalizer = load_callable(normalizer, "--normalizer") if normalizer else None

    def __repr__(self) -> str:
        return f"<backend {self.name}>"

    @property
    def name(self) -> str:
        """The name on the command line, or the adapter's own where only `--accelerator` was given."""
        return self._prepared.name

    @property
    def is_fake(self) -> bool:
        """True for a simulated machine."""
        return self._prepared.is_fake

    @cached_property
    def accelerator(self) -> Accelerator:
        """The adapter that the run uses; an object of another class where `--accelerator` brought one."""
        accelerator: Accelerator = self._prepared.new_accelerator()
        return accelerator

    def new_accelerator(self) -> Accelerator:
        """A fresh adapter object through which no runtime call was made."""
        accelerator: Accelerator = self._prepared.new_accelerator()
        return accelerator

    @cached_property
    def ranks(self) -> RankPool:
        """The ranks of this run, started at the first example; programs for them are in `conformance/rank_programs/`."""
        if self._make_ranks is None:
            raise ConformanceError("this run has no ranks; only checks of the multi-rank tier may ask for them")
        return self._make_ranks()

    @cached_property
    def aligner(self) -> Aligner:
        """The routed-expert alignment function under test: the reference's, or what `--aligner` names.

        Raises:
            FactoryError: it cannot be loaded.
        """
        return load_aligner(self._aligner)

    @property
    def aligner_path(self) -> str:
        """What `--aligner` names, for `load_aligner` in another process; empty for the reference's."""
        return self._aligner

    @cached_property
    def no_device_reason(self) -> str | None:
        """Why no device can be used, in words; None where one can."""
        return self._prepared.no_device_reason()

    @cached_property
    def device_count(self) -> int:
        """The number of devices that checks may use; 0 where none can be."""
        if self.no_device_reason is not None:
            return 0
        try:
            count = int(self.accelerator.device_count())
        except Exception:  # noqa: BLE001 - the checks of DEV report it; here the suite assumes the one device that is available
            count = 1
        limit = self._choice.devices
        return count if limit is None else min(count, limit)

    @property
    def normalizer(self) -> Callable[[str, Accelerator], str]:
        """The normalizer under test, of a backend string for an accelerator: the reference's, or the one that `--normalizer` named."""
        from harness.process_group import normalizer

        return self._normalizer or normalizer.normalize_backend

    @property
    def command(self) -> str:
        """The command line that runs the suite on this backend again, as far as the backend goes."""
        return " ".join(["python -m conformance", *self._choice.options])

    @property
    def given_schedule(self) -> str:
        """The schedule that the command line asks for; empty without one."""
        return self._choice.schedule

    def restart(self, schedule: str = "", seed: int | None = None) -> None:
        """Make a simulated machine as after a reboot, with work in the order of a schedule (the run's where empty). Nothing on a real
        device.

        Raises:
            OptionError: there is no such schedule.
        """
        if not self.is_fake:
            return
        from fakes.errors import FakesError

        machine = machine_here()
        if machine is not None:
            try:
                machine.reset(
                    schedule=schedule or self.given_schedule or USUAL_SCHEDULE, seed=self._choice.seed if seed is None else seed
                )
            except FakesError as error:
                raise OptionError(str(error)) from error

    def in_child(
        self,
        program: str | Callable[..., Any],
        *,
        environment: Mapping[str, str | None] = _NO_CHANGES,
        fresh_interpreter: bool = False,
        timeout: float = 60.0,
        **arguments: Any,
    ) -> Any:
        """Run `function(make_accelerator, **arguments)` in a child process and return its JSON answer.

        `program` is `"module:function"` or the module-level function itself. The child is forked from a zygote that has torch but not this
        project imported, or is a new interpreter; `environment` (None removes a variable) is in force before anything of the project or
        the vendor is imported. `make_accelerator()` installs the simulated machine and the fault of this run, and returns an adapter;
        `make_accelerator.apply_fault()` applies the fault alone.

        Raises:
            ChildFailed, ChildDied, ChildTimeout: see `conformance.errors`.
        """
        path = program if isinstance(program, str) else f"{program.__module__}:{program.__qualname__}"
        return self._children.run(
            path,
            backend=self._choice.as_data(),
            environment=environment,
            fresh_interpreter=fresh_interpreter,
            timeout=timeout,
            arguments=arguments,
        )
