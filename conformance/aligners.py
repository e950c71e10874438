"""Other people's alignment functions, called as one.

For: `--aligner=package.module:function`. A function may have the signature of `harness.routed_experts.align_routed_experts`, or the
older one that reads sizes and ranks from Megatron's parallel state; for that one a stand-in answers where Megatron is not installed. Not
for: judging what a function returns (`test_routed_experts_alignment.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from conformance.backends import load_callable
from conformance.checking import unsupported
from conformance.errors import FactoryError
from harness.routed_experts import alignment

if TYPE_CHECKING:
    import torch

    from harness.routed_experts.layout import ParallelLayout

_STATE_MODULE = "megatron.core.parallel_state"
_STATE_NAMES = ("megatron", "megatron.core", _STATE_MODULE, "megatron.core.mpu")


class Aligner(Protocol):
    """The signature under which every aligner is checked; see `harness.routed_experts.align_routed_experts`."""

    def __call__(
        self,
        routed_experts: Sequence[torch.Tensor],
        tokens: Sequence[torch.Tensor],
        *,
        layout: ParallelLayout,
        num_experts: int,
        padding: str = "sequential",
        validate: bool = False,
    ) -> torch.Tensor: ...


def load_aligner(path: str) -> Aligner:
    """The aligner that `package.module:function` names, or the reference where the path is empty.

    The reference is looked up at each call, so a fault in it takes effect.

    Raises:
        FactoryError: it cannot be loaded, or has neither signature.
    """
    if not path:
        return _reference
    state = _StandIn()
    with state.installed():
        function = load_callable(path, "--aligner")
    parameters = inspect.signature(function).parameters
    if "layout" in parameters:
        aligner: Aligner = function
        return aligner
    if "allgather_cp" in parameters:
        return _with_parallel_state(function, state)
    raise FactoryError(
        f"--aligner={path}: expected the parameters (routed_experts, tokens, *, layout, num_experts, padding, validate), or "
        "(routed_experts, tokens, *, num_experts, data_pad_size_multiplier, sequence_parallel, allgather_cp); it has "
        f"({', '.join(parameters)})"
    )


def _reference(*arguments: Any, **keywords: Any) -> torch.Tensor:
    return alignment.align_routed_experts(*arguments, **keywords)


def _with_parallel_state(function: Callable[..., torch.Tensor], state: _StandIn) -> Aligner:
    def align(
        routed_experts: Sequence[torch.Tensor],
        tokens: Sequence[torch.Tensor],
        *,
        layout: ParallelLayout,
        num_experts: int,
        padding: str = "sequential",
        validate: bool = False,
    ) -> torch.Tensor:
        if padding != "sequential":
            unsupported(f"the aligner under test takes no padding policy, so {padding!r} cannot be asked of it")
        if validate:
            unsupported("the aligner under test takes no `validate`, so it cannot be asked to check ids")
        with state.installed(layout):
            return function(
                routed_experts,
                tokens,
                num_experts=num_experts,
                data_pad_size_multiplier=layout.data_pad_size_multiplier,
                sequence_parallel=layout.sequence_parallel,
                allgather_cp=layout.allgather_context_parallel,
            )

    return align


class _StandIn:
    """Answers what Megatron's parallel state would answer for a layout, under Megatron's own names."""

    def __init__(self) -> None:
        self._layout: ParallelLayout | None = None
        self._module = types.ModuleType(_STATE_MODULE, "Stands in for Megatron's parallel state while an aligner is checked.")
        for name in ("tensor_model_parallel", "context_parallel", "expert_model_parallel"):
            field = name.replace("_model", "")
            setattr(self._module, f"get_{name}_world_size", self._answering(f"{field}_size"))
            setattr(self._module, f"get_{name}_rank", self._answering(f"{field}_rank"))

    def _answering(self, field: str) -> Callable[..., int]:
        def answer(*_arguments: Any, **_keywords: Any) -> int:
            if self._layout is None:
                raise RuntimeError(f"{field} was read outside a call; read sizes and ranks when the function is called")
            # No rank of the layout is an expert-parallel rank; alignment must not depend on it.
            value: int = getattr(self._layout, field, 0)
            return value

        return answer

    @contextlib.contextmanager
    def installed(self, layout: ParallelLayout | None = None) -> Iterator[None]:
        """Importable under Megatron's names and answering for `layout`; where Megatron is installed, in place of its own answers."""
        self._layout = layout
        try:
            with self._in_real_megatron() if _megatron_is_installed() else self._in_modules():
                yield
        finally:
            self._layout = None

    @contextlib.contextmanager
    def _in_modules(self) -> Iterator[None]:
        core = types.ModuleType("megatron.core")
        core.__path__ = []
        core.parallel_state = core.mpu = self._module  # type: ignore[attr-defined]
        package = types.ModuleType("megatron")
        package.__path__ = []
        package.core = core  # type: ignore[attr-defined]
        before = {name: sys.modules.get(name) for name in _STATE_NAMES}
        sys.modules.update(zip(_STATE_NAMES, (package, core, self._module, self._module), strict=True))
        try:
            yield
        finally:
            for name, module in before.items():
                if module is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module

    @contextlib.contextmanager
    def _in_real_megatron(self) -> Iterator[None]:
        real = importlib.import_module(_STATE_MODULE)
        names = [name for name in vars(self._module) if name.startswith("get_")]
        before = {name: getattr(real, name) for name in names}
        try:
            for name in names:
                setattr(real, name, getattr(self._module, name))
            yield
        finally:
            for name, function in before.items():
                setattr(real, name, function)


def _megatron_is_installed() -> bool:
    if "megatron" in sys.modules:
        return getattr(sys.modules["megatron"], "__spec__", None) is not None
    return importlib.util.find_spec("megatron") is not None
