"""Streams and events through a `torch.<type>` namespace.

For: constructors, the current stream of any device (STR-6) and the stream context (STR-5), with a clear refusal where there are
none (STR-13). Not for: what a stream does once it exists."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from harness.accelerator.capabilities import Capability
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.namespace_access import NamespaceAccess
from harness.accelerator.stream_context import StreamContext, stream_device


class NamespaceStreams(NamespaceAccess):
    """The streams part of a delegating backend."""

    @property
    def Stream(self) -> Any:  # noqa: N802 - the name that PyTorch's namespaces use
        return self._find("Stream")

    @property
    def Event(self) -> Any:  # noqa: N802 - the name that PyTorch's namespaces use
        return self._find("Event")

    def new_stream(self, *args: Any, **kwargs: Any) -> Any:
        constructor = self.Stream
        if constructor is not None:
            # A device in any form of the contract; what is not a device is the constructor's own.
            if args:
                args = (self.device(args[0]), *args[1:])
            elif "device" in kwargs:
                kwargs = {**kwargs, "device": self.device(kwargs["device"])}
            self._enter_runtime()
        return self._construct(Capability.STREAMS, constructor, args, kwargs)

    def current_stream(self, device: DeviceLike = None) -> Any:
        if not self.supports(Capability.STREAMS):
            return None
        index = self.device_index(device)
        self._enter_runtime()
        return self._require("current_stream", Capability.STREAMS)(index)

    def default_stream(self, device: DeviceLike = None) -> Any:
        function = self._require("default_stream", Capability.STREAMS)
        index = self.device_index(device)
        self._enter_runtime()
        return function(index)

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        select = self._require("stream", Capability.STREAMS)
        if stream is None:
            return nullcontext()
        self.device_index(stream_device(stream))
        self._enter_runtime()
        return StreamContext(self, stream, select(stream))
