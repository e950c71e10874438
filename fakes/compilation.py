"""Compilers of PyTorch while a machine is installed.

For: `torch.jit.script`, which knows functions by their identity, and `torch.compile`, which cannot look into a simulated device. Not
for: what the compiled code then calls.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.jit import _builtins

from fakes.patching import Patches


def apply(patches: Patches) -> None:
    """Let what `torch.compile` is given run uncompiled, as under `torch.compiler.set_stance("force_eager")`."""
    original: Any = torch.compile
    was_set: list[str] = []

    def run_uncompiled() -> None:
        from torch._dynamo import eval_frame

        was_set.append(eval_frame._stance.stance)
        torch.compiler.set_stance("force_eager")

    def restore() -> None:
        if was_set:
            torch.compiler.set_stance(was_set[0])

    @functools.wraps(original)
    def uncompiled(*args: Any, **kwargs: Any) -> Any:
        if not was_set:
            run_uncompiled()
        return original(*args, **kwargs)

    if "torch._dynamo.eval_frame" in sys.modules:
        run_uncompiled()
    patches.on_undo(restore)
    patches.set(torch, "compile", uncompiled)


def teach_script(patches: Patches, before: Mapping[str, Any]) -> None:
    """Let `torch.jit.script` take the functions of `torch` that were patched for the operators that they were; `before` is the
    namespace without the patches."""
    make_table: Any = _builtins._get_builtin_table
    names = make_table()
    for name, function in before.items():
        operator, now = names.get(id(function)), getattr(torch, name, function)
        if operator is not None and now is not function:
            patches.set_item(names, id(now), operator)
