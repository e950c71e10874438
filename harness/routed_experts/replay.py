"""Recorded routing decisions, handed back exactly once.

For: `RoutingReplay` (one router), `RoutingReplayGroup` (the routers of one rank: whether replay is on, in which stage, for which
micro-batch) and the wrapper around a router's top-k. All state is in these objects. Not for: deciding which layer of a recording
belongs to which router (`replay_filling.py`) or reading environment variables (`megatron.py`).
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import torch

from harness.errors import RoutingReplayError

_COMPACT_DTYPES = frozenset({torch.uint8, torch.int8, torch.int16})
"""Kept as recorded; others are recorded as int32, since a device need not have them."""


class ReplayStage(enum.Enum):
    """What a router does with its top-k."""

    RECORD = "record"
    """Compute it and record it."""
    REPLAY_FORWARD = "replay_forward"
    """Take what was recorded, in the forward pass."""
    REPLAY_BACKWARD = "replay_backward"
    """Take what was recorded, where the backward pass computes the forward again."""
    FALLTHROUGH = "fallthrough"
    """Compute it and leave the recording alone."""


class ComputeTopK(Protocol):
    """A router's choice: scores `[tokens, experts]` to (probabilities, indices), both `[tokens, topk]`."""

    def __call__(
        self, scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


def current_device() -> torch.device:
    """The current device of PyTorch's accelerator; the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.empty(0, device=torch.accelerator.current_accelerator()).device


class RoutingReplay:
    """The recorded choices of one router, by micro-batch.

    Each micro-batch may be popped once forward and once backward. Without a key pops follow the order of recording, forward and
    backward counted apart; with a key they follow the schedule (RXR-1, RXR-5).

    Args:
        router: a name for errors, such as `"layer 3"`.
        device: where pops put the indices: a device, or a function that is asked at each pop. By default PyTorch's current
            accelerator.
    """

    def __init__(self, router: str, *, device: torch.device | Callable[[], torch.device] = current_device) -> None:
        self.router = router
        self._device = device
        self._recorded: dict[int, torch.Tensor] = {}
        self._popped: dict[ReplayStage, set[int]] = {ReplayStage.REPLAY_FORWARD: set(), ReplayStage.REPLAY_BACKWARD: set()}

    @property
    def recorded_count(self) -> int:
        """How many micro-batches are recorded."""
        return len(self._recorded)

    @property
    def forward_count(self) -> int:
        """How many were popped forward."""
        return len(self._popped[ReplayStage.REPLAY_FORWARD])

    @property
    def backward_count(self) -> int:
        """How many were popped backward."""
        return len(self._popped[ReplayStage.REPLAY_BACKWARD])

    @property
    def recorded(self) -> Mapping[int, torch.Tensor]:
        """The recording by micro-batch: host tensors, to look at and not to write."""
        return MappingProxyType(self._recorded)

    def record(self, top_indices: torch.Tensor, *, micro_batch: int | None = None) -> None:
        """Keep a copy of one micro-batch's choices on the host, pinned where memory can be pinned.

        The copy is compact: it keeps nothing else of a tensor alive that `top_indices` is a slice of (RXR-4).

        Args:
            top_indices: `[tokens, top_k]`, any integer dtype and device.
            micro_batch: its key; by default the number of micro-batches recorded so far.

        Raises:
            RoutingReplayError: that micro-batch is recorded already, or `top_indices` is not two-dimensional and of an integer dtype.
        """
        key = self.require_recordable(top_indices, micro_batch)
        copy = _empty_on_host(top_indices.shape, top_indices.dtype if top_indices.dtype in _COMPACT_DTYPES else torch.int32)
        copy.copy_(top_indices)
        self._recorded[key] = copy

    def require_recordable(self, top_indices: torch.Tensor, micro_batch: int | None) -> int:
        """The key that `record` would use, without recording.

        Raises:
            RoutingReplayError: as `record`.
        """
        dtype = top_indices.dtype
        if top_indices.ndim != 2 or dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
            raise RoutingReplayError(
                f"router {self.router}: cannot record {dtype} {list(top_indices.shape)}; top-k indices are integers [tokens, top_k]"
            )
        key = self.recorded_count if micro_batch is None else micro_batch
        if key in self._recorded:
            raise RoutingReplayError(
                f"router {self.router}: micro-batch {key} is recorded already ({self._counts()}); clear() before the next batch"
            )
        return key

    def pop_forward(self, *, micro_batch: int | None = None, shape: tuple[int, int] | None = None) -> torch.Tensor:
        """The next choices of the forward pass: int32 `[tokens, top_k]` on the current device.

        Args:
            micro_batch: which one; by default the first recorded that was not popped yet.
            shape: what the caller needs; another shape is refused, and nothing is consumed.

        Raises:
            RoutingReplayError: nothing is recorded, everything was popped already, this micro-batch was popped already or never
                recorded, or the shape differs. It names the router and the counts (RXR-3).
        """
        return self._pop(ReplayStage.REPLAY_FORWARD, micro_batch, shape)

    def pop_backward(self, *, micro_batch: int | None = None, shape: tuple[int, int] | None = None) -> torch.Tensor:
        """The next choices of the backward pass; as `pop_forward`, counted apart."""
        return self._pop(ReplayStage.REPLAY_BACKWARD, micro_batch, shape)

    def _pop(self, stage: ReplayStage, micro_batch: int | None, shape: tuple[int, int] | None) -> torch.Tensor:
        popped = self._popped[stage]
        if micro_batch is None:
            micro_batch = next((key for key in self._recorded if key not in popped), None)
        where = f"router {self.router}, {stage.value}"
        if micro_batch is None:
            raise RoutingReplayError(f"{where}: nothing is left to replay ({self._counts()})")
        if micro_batch not in self._recorded:
            known = sorted(self._recorded)
            raise RoutingReplayError(
                f"{where}: micro-batch {micro_batch} was never recorded; recorded are {known} ({self._counts()})"
            )
        if micro_batch in popped:
            raise RoutingReplayError(f"{where}: micro-batch {micro_batch} was replayed already ({self._counts()})")
        indices = self._recorded[micro_batch]
        if shape is not None and tuple(indices.shape) != tuple(shape):
            raise RoutingReplayError(
                f"{where}: micro-batch {micro_batch} has indices {list(indices.shape)}, but the scores need {list(shape)} "
                f"[tokens, top_k] ({self._counts()})"
            )
        popped.add(micro_batch)
        device = self._device if isinstance(self._device, torch.device) else self._device()
        # A compact dtype travels as it is, and becomes int32 on the device.
        return indices.to(device, copy=True, non_blocking=indices.is_pinned()).to(torch.int32)

    def check_consumed(self) -> None:
        """Require that each recorded micro-batch was popped once forward and once backward.

        Raises:
            RoutingReplayError: it was not, or nothing was recorded.
        """
        if not self._recorded or not self.forward_count == self.backward_count == self.recorded_count:
            raise RoutingReplayError(f"router {self.router} was not consumed exactly once: {self._counts()}")

    def rewind_forward(self) -> None:
        """Allow one more forward pass over the same recording, as after computing log probabilities and before training."""
        self._popped[ReplayStage.REPLAY_FORWARD].clear()

    def clear(self) -> None:
        """Forget the recording and the counts."""
        self._recorded.clear()
        for popped in self._popped.values():
            popped.clear()

    def _counts(self) -> str:
        return f"recorded {self.recorded_count}, forward {self.forward_count}, backward {self.backward_count}"


class RoutingReplayGroup:
    """The routers of one rank, in the order of their layers, and what they are to do now.

    Args:
        enabled: without it every method, and every wrapped top-k, behaves as if there were no replay (RXR-5).
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.stage = ReplayStage.FALLTHROUGH
        self.micro_batch: int | None = None
        """The micro-batch that is being computed; None replays in the order of recording."""
        self.filled_count = 0
        """How many micro-batches `fill_routing_replay` put in since the last `clear`."""
        self._replays: list[RoutingReplay] = []

    def add(self, replay: RoutingReplay) -> RoutingReplay:
        """Add the replay of the next router, and return it."""
        self._replays.append(replay)
        return replay

    def __len__(self) -> int:
        return len(self._replays)

    def __iter__(self) -> Iterator[RoutingReplay]:
        return iter(self._replays)

    def __getitem__(self, index: int) -> RoutingReplay:
        return self._replays[index]

    @contextlib.contextmanager
    def in_stage(self, stage: ReplayStage, *, micro_batch: int | None = None) -> Iterator[None]:
        """A context in which the routers are in a stage and compute a micro-batch; the previous ones are restored."""
        before = self.stage, self.micro_batch
        self.stage, self.micro_batch = stage, micro_batch
        try:
            yield
        finally:
            self.stage, self.micro_batch = before

    def wrap_compute_top_k(self, compute_top_k: ComputeTopK, replay: RoutingReplay) -> ComputeTopK:
        """A router's top-k that records or replays as this group's stage says.

        In the replay stages the probabilities are gathered from the dense scores at the recorded indices, so gradients reach them;
        the indices are int64, as `torch.topk` gives them.

        Raises:
            RoutingReplayError: on a call in a replay stage, as `RoutingReplay.pop_forward`; the indices must be
                `[len(scores), topk]`.
        """

        def compute(
            scores: torch.Tensor, topk: int, num_groups: int | None = None, group_topk: int | None = None
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if not self.enabled or self.stage is ReplayStage.FALLTHROUGH:
                return compute_top_k(scores, topk, num_groups=num_groups, group_topk=group_topk)
            if self.stage is ReplayStage.RECORD:
                probabilities, indices = compute_top_k(scores, topk, num_groups=num_groups, group_topk=group_topk)
                replay.record(indices, micro_batch=self.micro_batch)
                return probabilities, indices
            pop = replay.pop_forward if self.stage is ReplayStage.REPLAY_FORWARD else replay.pop_backward
            indices = pop(micro_batch=self.micro_batch, shape=(scores.size(0), topk)).to(scores.device, torch.int64)
            return scores.gather(1, indices), indices

        return compute

    def check_consumed(self) -> None:
        """Require that every router's recording was consumed exactly once.

        Raises:
            RoutingReplayError: names every router that was not, with its counts; or replay is enabled and there is nothing at all.
        """
        if not self.enabled:
            return
        if not self._replays and not self.filled_count:
            raise RoutingReplayError("routing replay is enabled, but no router was added and nothing was filled")
        errors = []
        for replay in self._replays:
            try:
                replay.check_consumed()
            except RoutingReplayError as error:
                errors.append(str(error))
        if errors:
            raise RoutingReplayError("; ".join(errors))

    def rewind_forward(self) -> None:
        """`RoutingReplay.rewind_forward` of every router."""
        for replay in self._replays:
            replay.rewind_forward()

    def clear(self) -> None:
        """Forget every recording; the routers stay."""
        self.filled_count = 0
        for replay in self._replays:
            replay.clear()


def _empty_on_host(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    pageable = torch.empty(shape, dtype=dtype, device="cpu")
    try:
        return pageable.pin_memory()
    except (RuntimeError, NotImplementedError):
        return pageable  # no accelerator, or one that pins nothing: the bytes are the same
