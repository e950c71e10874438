"""Which accelerator a process uses.

For: choosing one from a registry once, in the order explicit request, vendor request, priority (SEL-1 to SEL-9, SEL-11 to SEL-13).
Not for: what is registered (`registry.py`) or the process-wide instance behind the public functions (`default.py`).

Whatever goes wrong with a backend before it is chosen is a reason to pass it over; whatever goes wrong with the chosen one is
raised.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from harness.accelerator.interface import require_interface
from harness.accelerator.registration import Availability, Registration, resolve_reference
from harness.accelerator.registry import AcceleratorRegistry
from harness.errors import (
    AcceleratorUnavailableError,
    HarnessError,
    IncompleteAcceleratorError,
    NoAcceleratorError,
    ReentrantSelectionError,
)

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """A backend asked for by `name`; `source` is the variable and its value, and `remedy` how to take the request back."""

    name: str
    source: str
    remedy: str


class AcceleratorSelector:
    """The choice of one accelerator from `registry`, made at the first `get` and kept until `reset`.

    `environment` is read at each selection, `os.environ` where None. `variable_prefix` opens the name of the variable with the
    explicit request, `SLIME_ACCELERATOR` by default, so that every framework can use its own. One lock covers selection, `set` and
    `reset`: the first calls of many threads run one selection (SEL-8).
    """

    def __init__(
        self, registry: AcceleratorRegistry, environment: Mapping[str, str] | None = None, variable_prefix: str = "SLIME_"
    ) -> None:
        self.registry = registry
        self.variable = f"{variable_prefix}ACCELERATOR"
        self._environment = environment
        self._lock = threading.RLock()
        self._selecting = False
        self._selected: Accelerator | None = None

    def get(self) -> Accelerator:
        """The selected accelerator; selects at the first call.

        Raises:
            UnknownAcceleratorError: an explicit request for a name that nobody registered (SEL-3).
            AcceleratorUnavailableError: a request that cannot be met, or a chosen backend that fails (SEL-2).
            VendorPatchError: the chosen backend's patch fails (SEL-7).
            IncompleteAcceleratorError: the chosen backend lacks part of the interface (SEL-13).
            NoAcceleratorError: no request, and nothing usable; the message has the reason for each backend (SEL-4).
            ReentrantSelectionError: called by a factory, probe or bootstrap of the selection that is going on.
        """
        selected = self._selected
        if selected is not None:
            return selected
        with self._exclusively():
            if self._selected is None:
                self._selected = self._select()
            return self._selected

    def initialize(self) -> Accelerator | None:
        """As `get`, but None on a host without a usable device and without a request (SEL-5)."""
        try:
            return self.get()
        except NoAcceleratorError as error:
            logger.info("%s", error)
            return None

    def set(self, accelerator: Accelerator) -> None:
        """Use this accelerator from now on, whatever the environment requests.

        Raises:
            IncompleteAcceleratorError: not an Accelerator; a TypeError (SEL-12).
            AcceleratorUnavailableError: it says that no device can be used (SEL-12).
        """
        require_accelerator(accelerator, "set_accelerator()")
        availability = check_product(accelerator)
        if not availability:
            raise AcceleratorUnavailableError(
                f"set_accelerator(): accelerator {accelerator.name!r} cannot be used: {availability.reason}. Set one that has a "
                "visible device"
            )
        with self._exclusively():
            self._selected = accelerator

    def reset(self) -> None:
        """Forget the selection; the next `get` selects anew. A vendor's patch stays imported (SEL-6)."""
        with self._exclusively():
            self._selected = None

    def request(self) -> Request | None:
        """The request in the environment, explicit before vendor's, or None for automatic selection (SEL-1)."""
        environment = self._current_environment()
        value = environment.get(self.variable, "")
        if value.strip().lower() not in ("", "auto"):
            return Request(value, f"{self.variable}={value!r}", f"unset {self.variable} or set it to auto to let one be chosen")
        for registration in self.registry.registrations():
            for variable in registration.request_variables:
                if environment.get(variable, "").strip():
                    source = f"{variable}={environment[variable]!r}"
                    return Request(registration.name, source, f"unset {variable}, or name another backend in {self.variable}")
        return None

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        with self._lock:
            if self._selecting:
                raise ReentrantSelectionError(
                    "the accelerator was asked for, set or reset by a factory, probe or bootstrap of the selection going on: "
                    "such code must work without it, and ask for it when it is first needed"
                )
            self._selecting = True
            try:
                yield
            finally:
                self._selecting = False

    def _select(self) -> Accelerator:
        request = self.request()
        if request is not None:
            return self._select_requested(request)
        return self._select_available()

    def _select_requested(self, request: Request) -> Accelerator:
        registration = self.registry.get(request.name)
        self._bootstrap(registration, request)
        availability = check_probe(registration)
        if not availability:
            raise unusable(registration, request, availability.reason) from availability.cause
        return self._construct(registration, request)

    def _select_available(self) -> Accelerator:
        reasons: dict[str, str] = {}
        for registration in self.registry.registrations():
            if registration.is_available is None:
                try:
                    product = self._construct(registration, None)
                except HarnessError as error:
                    reasons[registration.name] = str(error)
                    continue
                return product
            availability = check_probe(registration)
            if availability:
                self._bootstrap(registration, None)
                return self._construct(registration, None)
            reasons[registration.name] = availability.reason
        for name, failure in self.registry.entry_point_failures().items():
            reasons[name] = f"it could not be loaded: {type(failure).__name__}: {failure}"
        raise self._nothing_usable(reasons)

    def _nothing_usable(self, reasons: Mapping[str, str]) -> NoAcceleratorError:
        passed_over = "".join(f"\n  {name}: {reason}" for name, reason in sorted(reasons.items()))
        return NoAcceleratorError(
            f"no usable accelerator; passed over:{passed_over or ' nothing, since nothing is registered'}\n"
            f"Install a PyTorch for a device that is visible to this process, or request a backend in {self.variable} to see why "
            "it cannot be used"
        )

    def _bootstrap(self, registration: Registration, request: Request | None) -> None:
        """Run the vendor's bootstrap; its own once-only rule holds across selections."""
        if registration.bootstrap is None:
            return
        try:
            resolve_reference(registration.bootstrap)(self._current_environment())
        except HarnessError:
            raise
        except Exception as error:
            raise unusable(registration, request, f"its bootstrap raised {_shown(error)}") from error

    def _construct(self, registration: Registration, request: Request | None) -> Accelerator:
        product = self._call_factory(registration, request)
        availability = check_product(product)
        if not availability:
            raise unusable(registration, request, availability.reason) from availability.cause
        logger.info("selected accelerator %r (%s)", registration.name, request.source if request else "automatic")
        return product

    def _call_factory(self, registration: Registration, request: Request | None) -> Accelerator:
        try:
            product = registration.new_accelerator()
        except IncompleteAcceleratorError:
            raise
        except Exception as error:
            raise unusable(registration, request, f"its factory raised {_shown(error)}") from error
        return require_accelerator(product, registration.shown)

    def _current_environment(self) -> Mapping[str, str]:
        return os.environ if self._environment is None else self._environment


def check_probe(registration: Registration) -> CheckedAvailability:
    """What a registration's probe says, in words; an error in it counts as unavailable (SEL-11). True where it has no probe."""
    if registration.is_available is None:
        return CheckedAvailability(True, "it has no probe")
    return _checked("its probe", registration.is_available)


def check_product(accelerator: Accelerator) -> CheckedAvailability:
    """What an accelerator says of itself, in words; an error counts as unavailable."""
    return _checked(f"{type(accelerator).__name__}.is_available()", accelerator.is_available)


@dataclass(frozen=True)
class CheckedAvailability(Availability):
    """An answer, and the error that stands for it where the probe raised."""

    cause: Exception | None = None


def unusable(registration: Registration, request: Request | None, reason: str) -> AcceleratorUnavailableError:
    """The error that names the backend, the reason and the remedy (SEL-2)."""
    chosen = f"requested by {request.source}" if request else "chosen automatically"
    remedies = [registration.remedy, request.remedy if request else ""]
    remedy = "; ".join(part.rstrip(".") for part in remedies if part) or "mend it, or request another backend"
    return AcceleratorUnavailableError(f"accelerator {registration.name!r} ({chosen}) cannot be used: {reason}. Remedy: {remedy}")


def _checked(what: str, probe: Any) -> CheckedAvailability:
    try:
        answer = resolve_reference(probe)()
        usable = bool(answer)
    except Exception as error:  # noqa: BLE001 - whatever a vendor's probe raises is an answer (SEL-11)
        return CheckedAvailability(False, f"{what} raised {_shown(error)}", error)
    reason = getattr(answer, "reason", None)
    return CheckedAvailability(usable, reason if isinstance(reason, str) else f"{what} says {usable}")


def require_accelerator(product: object, what: str) -> Accelerator:
    if isinstance(product, type) or product is None:
        raise IncompleteAcceleratorError(f"{what}: {product!r} is not an Accelerator object; give an instance")
    require_interface(product, what)
    return cast("Accelerator", product)


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
