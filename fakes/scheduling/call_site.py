"""The line of the user's code that issued a launch.

For: messages about launches. Not for: anything that decides what runs.
"""

from __future__ import annotations

import os
import sys
from types import CodeType

import torch

_FAKES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_is_internal: dict[CodeType, bool] = {}


def call_site() -> str:
    """`file:line in function` of the innermost frame that is neither PyTorch's nor this package's, and the backward node if there is
    one."""
    frame = sys._getframe(1)
    current: object = frame
    while current is not None:
        code = frame.f_code
        internal = _is_internal.get(code)
        if internal is None:
            internal = _is_internal[code] = code.co_filename.startswith((_FAKES, _TORCH, "<"))
        if not internal:
            break
        if frame.f_back is None:
            return "unknown"
        frame = frame.f_back
        current = frame
    node = torch._C._current_autograd_node()
    backward = f" (backward: {node.name()})" if node is not None else ""
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}{backward}"


def shortened(site: str) -> str:
    """A call site with its path relative to the current folder, where it is below that."""
    return site.removeprefix(os.getcwd() + os.sep)
