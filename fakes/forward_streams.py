"""Which stream a node of an autograd graph ran on in its forward, whatever thread made it (THR-1).

For: finding it from the node. Not for: what backward does with it (`backward.py`).

PyTorch numbers the nodes of each thread's graph as they are made. Each change of a thread's current stream is noted with the next number,
so that a node's number tells the stream, once it is known which thread made the node. In a process with one thread that is no question.
With several, each result of an operator notes its thread, and where an operator takes another thread's tensor, so does the node behind
that tensor: from node to node of a graph the thread is the same unless the node says otherwise. Copies to the host always note theirs,
since host tensors know nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from fakes.stream_state import StreamState

if TYPE_CHECKING:
    from fakes.operator_plan import OperatorPlan

_MOST_CHANGES = 1 << 16
_NOTED = "simulated device: forward streams"
_COPIES = frozenset({"aten::_to_copy", "aten::copy_"})
_next_number: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_Tensor = torch.Tensor


class ForwardStreams:
    """When one thread changed the current stream of which device."""

    def __init__(self, threads: ThreadsOfNodes) -> None:
        self.threads = threads
        self._changes: dict[int, tuple[list[int], list[StreamState]]] = {}

    def changed(self, stream: StreamState) -> None:
        """A stream became current."""
        numbers, streams = self._changes.setdefault(stream.device_index, ([], []))
        number = _next_number()
        if numbers and numbers[-1] == number:
            streams[-1] = stream
            return
        numbers.append(number)
        streams.append(stream)
        if len(numbers) > _MOST_CHANGES:
            del numbers[: _MOST_CHANGES // 2], streams[: _MOST_CHANGES // 2]

    def at(self, index: int, number: int) -> StreamState | None:
        """The stream of a device that was current when a node was made; None for the default one."""
        numbers, streams = self._changes.get(index, ((), ()))
        place = bisect_right(numbers, number) - 1
        return streams[place] if place >= 0 else None


class ThreadsOfNodes:
    """Which thread made which node, on one machine between two resets."""

    def __init__(self) -> None:
        self._first: ForwardStreams | None = None
        self.several = False
        """Whether several threads have used the machine."""

    def new(self) -> ForwardStreams:
        """For a thread that uses the machine for the first time."""
        thread = ForwardStreams(self)
        if self._first is None:
            self._first = thread
        else:
            self.several = True
        return thread

    def run(self, plan: OperatorPlan, args: Any, kwargs: Any, here: ForwardStreams) -> Any:
        """Run an operator in one of several threads, and note whose tensors it takes and makes."""
        for tensor in _device_tensors(args):
            thread = self._of(tensor)
            if (thread is not here or plan.name in _COPIES) and tensor.requires_grad and tensor.grad_fn is not None:
                tensor.grad_fn.metadata[_NOTED] = thread
        result = plan.run(plan, args, kwargs)
        for place in plan.mutated:
            written = (kwargs or {}).get(place) if isinstance(place, str) else args[place] if place < len(args) else None
            for tensor in _device_tensors((written,)):
                tensor._made_in = here
        for tensor in _device_tensors((result,)):
            tensor._made_in = here
        return result

    def of_graph(self, roots: Iterable[Any], here: ForwardStreams) -> dict[Any, ForwardStreams]:
        """The thread that made each node behind some roots (tensors or gradient edges), where it is not `here`.

        Nodes are told apart by their Python objects, which live as long as the answer.
        """
        found: dict[Any, ForwardStreams] = {}
        pending = [(_node_of(root), self._of_root(root, here)) for root in roots]
        seen = set()
        while pending:
            node, thread = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            found[node] = thread = self._current(node.metadata.get(_NOTED, thread))
            if all(gradient.device.type == "cpu" for gradient in node._input_metadata):
                thread = self._current(None)  # else the copy to the host had noted another
            pending += [(before, thread) for before, _ in node.next_functions]
        return {node: thread for node, thread in found.items() if thread is not here}

    def _of(self, tensor: Any) -> ForwardStreams:
        """The thread that made a device tensor."""
        return self._current(tensor._made_in)

    def _of_root(self, root: Any, here: ForwardStreams) -> ForwardStreams:
        if not isinstance(root, _Tensor):
            return here
        return self._current(getattr(root, "_made_in", None))

    def _current(self, noted: ForwardStreams | None) -> ForwardStreams:
        """What was noted; where nothing was, the first thread, since there was no other then."""
        if noted is not None and noted.threads is self:
            return noted
        if self._first is None:
            return self.new()
        return self._first


def _node_of(root: Any) -> Any:
    return root.grad_fn if isinstance(root, _Tensor) else root.node


def _device_tensors(values: Any) -> Iterator[Any]:
    """The device tensors among arguments or results, in lists too."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _device_tensors(value)
        elif isinstance(value, _Tensor) and hasattr(value, "_made_in"):
            yield value
