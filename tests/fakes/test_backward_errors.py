"""What a hook or a backward of the user's raises comes out of `.backward()`; in a child process, since it may end the process."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch

import fakes
from conformance.children import ChildProcesses


class _Expected(Exception):
    pass


class _Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _fail()


def _fail(*_: Any) -> None:
    raise _Expected("from the user's code") from KeyError("its cause")


def _tensor_hook(leaf: torch.Tensor) -> torch.Tensor:
    result = leaf * 2
    result.register_hook(_fail)
    return result


def _leaf_hook(leaf: torch.Tensor) -> torch.Tensor:
    leaf.register_hook(_fail)
    return leaf * 2


def _accumulated_hook(leaf: torch.Tensor) -> torch.Tensor:
    leaf.register_post_accumulate_grad_hook(_fail)
    return leaf * 2


def _node_hook(leaf: torch.Tensor) -> torch.Tensor:
    result = leaf * 2
    assert result.grad_fn is not None
    result.grad_fn.register_hook(_fail)
    return result


def _node_prehook(leaf: torch.Tensor) -> torch.Tensor:
    result = leaf * 2
    assert result.grad_fn is not None
    result.grad_fn.register_prehook(_fail)
    return result


def _module_hook(leaf: torch.Tensor) -> Any:
    layer = torch.nn.Linear(3, 3, device=leaf.device)
    layer.register_full_backward_hook(_fail)
    return layer(leaf)


def _module_prehook(leaf: torch.Tensor) -> Any:
    layer = torch.nn.Linear(3, 3, device=leaf.device)
    layer.register_full_backward_pre_hook(_fail)
    return layer(leaf)


def _function(leaf: torch.Tensor) -> Any:
    return _Raising.apply(leaf)


def _nested(leaf: torch.Tensor) -> torch.Tensor:
    """The hook calls backward, whose hook fails."""

    def backward(_: torch.Tensor) -> None:
        inner = torch.ones(3, device=leaf.device, requires_grad=True)
        with torch.enable_grad():
            _tensor_hook(inner).sum().backward()

    result = leaf * 2
    result.register_hook(backward)
    return result


PLACES: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    _tensor_hook,
    _leaf_hook,
    _accumulated_hook,
    _node_hook,
    _node_prehook,
    _module_hook,
    _module_prehook,
    _function,
    _nested,
)


def run_all(_make_accelerator: object) -> list[str]:
    """In the child: what is wrong."""
    machine = fakes.install("musa")
    wrong = run_here()
    for schedule in ("lazy", "seeded"):
        machine.reset(schedule=schedule)
        wrong += [f"{schedule}: {text}" for text in run_here()]
    return wrong


def run_here() -> list[str]:
    """What is wrong on the machine that is installed."""
    side = torch.musa.Stream("musa:1")
    wrong = []
    for place in PLACES:
        for differentiate in (lambda loss, _leaf: loss.backward(), torch.autograd.grad):
            leaf = torch.ones(3, device="musa:1", requires_grad=True)
            side.wait_stream(torch.musa.current_stream(1))
            with torch.musa.stream(side):
                loss = place(leaf).sum()
            try:
                differentiate(loss, leaf)
            except _Expected as error:
                text = "".join(traceback.format_exception(error))
                if "its cause" not in text or "in _fail" not in text or "SystemError: " in text or "in type_" in text:
                    wrong.append(f"{place.__name__}: {text}")
            else:
                # Here the leaf's gradient is not accumulated, so no hook on it is due.
                if place is not _accumulated_hook:
                    wrong.append(f"{place.__name__}: raised nothing")
            here = (torch.musa.current_device(), torch.musa.current_stream().stream_id, torch.musa.current_stream(1).stream_id)
            if here != (0, 0, 0):
                wrong.append(f"{place.__name__}: afterwards current are {here}")
            other = torch.full((2,), 3.0, device="musa:1", requires_grad=True)
            (other * other).sum().backward()
            if other.grad is None or other.grad.tolist() != [6, 6]:
                wrong.append(f"{place.__name__}: a later backward gave {other.grad}")
    return wrong


def test_an_exception_of_a_hook_comes_out_of_backward(children: ChildProcesses) -> None:
    wrong = children.run(
        f"{__name__}:run_all",
        backend={},
        environment={"TORCH_CPP_LOG_LEVEL": "FATAL"},
        fresh_interpreter=False,
        timeout=120,
        arguments={},
    )
    assert wrong == []
