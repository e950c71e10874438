"""Every form in which a caller names a device, as values that print as code.

For: drawing legal and illegal forms without knowing the backend; an index stands for itself modulo the number of devices. Not
for: what a backend makes of them (`device_program.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from conformance.programs.printing import PrintsAsCode


class Indexable:
    """Something that is no int and has `__index__`, as NumPy's integers are."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __index__(self) -> int:
        return self._index

    def __repr__(self) -> str:
        return f"Indexable({self._index})"


INDEXED_KINDS = ("int", "str", "type:index", "torch.device", "__index__")
CURRENT_KINDS = ("type", "torch.device without index")


@dataclass(frozen=True, repr=False)
class DeviceForm(PrintsAsCode):
    """A legal form. `kind` is one of `INDEXED_KINDS`, `CURRENT_KINDS` or `None`; `index` counts for the first only."""

    kind: str
    index: int = 0

    def __repr__(self) -> str:
        texts = {
            "int": f"{self.index}",
            "str": f"'{self.index}'",
            "type:index": f"'<type>:{self.index}'",
            "torch.device": f"torch.device('<type>', {self.index})",
            "__index__": f"Indexable({self.index})",
            "type": "'<type>'",
            "torch.device without index": "torch.device('<type>')",
            "None": "None",
        }
        return texts[self.kind]

    def local_index(self, current: int, count: int) -> int:
        """The device that the form means where `current` is current."""
        return self.index % count if self.kind in INDEXED_KINDS else current

    def value(self, device_type: str, count: int) -> Any:
        """What a caller writes."""
        index = self.index % count
        values: dict[str, Any] = {
            "int": index,
            "str": str(index),
            "type:index": f"{device_type}:{index}",
            "torch.device": torch.device(device_type, index),
            "__index__": Indexable(index),
            "type": device_type,
            "torch.device without index": torch.device(device_type),
            "None": None,
        }
        return values[self.kind]


@dataclass(frozen=True, repr=False)
class IllegalForm(PrintsAsCode):
    """A form that names no device of the backend.

    `kind`: see `_ILLEGAL`. `number`: how far past the end, or below zero, the index is.
    """

    kind: str
    number: int = 0

    def __repr__(self) -> str:
        return _ILLEGAL[self.kind].text.format(n=self.number, past=f"count + {self.number}", wrap=256 * (self.number % 4 + 1))

    def value(self, device_type: str, count: int) -> Any:
        """What a caller writes."""
        other = "cpu" if device_type != "cpu" else "cuda"
        past = count + self.number
        wrapping = 256 * (self.number % 4 + 1)
        return _ILLEGAL[self.kind].make(device_type, other, past, wrapping, self.number)

    def quoted(self, device_type: str, count: int) -> str:
        """What the refusal must mention, so that a reader knows which device was meant."""
        value = self.value(device_type, count)
        if isinstance(value, torch.device):
            return value.type if value.type != device_type else str(value.index)
        return str(value)


@dataclass(frozen=True)
class _Illegal:
    text: str
    make: Any


_ILLEGAL = {
    "other type": _Illegal("'<other type>:0'", lambda _type, other, _past, _wrap, _n: f"{other}:0"),
    "other bare type": _Illegal("'<other type>'", lambda _type, other, _past, _wrap, _n: other),
    "other torch.device": _Illegal(
        "torch.device('<other type>', 0)", lambda _type, other, _past, _wrap, _n: torch.device(other, 0)
    ),
    "past the end": _Illegal("{past}", lambda _type, _other, past, _wrap, _n: past),
    "str past the end": _Illegal("str({past})", lambda _type, _other, past, _wrap, _n: str(past)),
    "type:index past the end": _Illegal("f'<type>:{{{past}}}'", lambda kind, _other, past, _wrap, _n: f"{kind}:{past}"),
    "torch.device past the end": _Illegal(
        "torch.device('<type>', {past})", lambda kind, _other, past, _wrap, _n: torch.device(kind, min(past, 127))
    ),
    "wraps to 0": _Illegal("{wrap}", lambda _type, _other, _past, wrap, _n: wrap),
    "type:index wraps to 0": _Illegal("'<type>:{wrap}'", lambda kind, _other, _past, wrap, _n: f"{kind}:{wrap}"),
    "negative": _Illegal("-1 - {n}", lambda _type, _other, _past, _wrap, n: -1 - n),
    "negative str": _Illegal("str(-1 - {n})", lambda _type, _other, _past, _wrap, n: str(-1 - n)),
    "type:negative": _Illegal("f'<type>:{{-1 - {n}}}'", lambda kind, _other, _past, _wrap, n: f"{kind}:{-1 - n}"),
    "bool": _Illegal("True", lambda _type, _other, _past, _wrap, _n: True),
    "float": _Illegal("0.5", lambda _type, _other, _past, _wrap, _n: 0.5),
    "type with a colon": _Illegal("'<type>:'", lambda kind, _other, _past, _wrap, _n: f"{kind}:"),
    "type with a word": _Illegal("'<type>:x'", lambda kind, _other, _past, _wrap, _n: f"{kind}:x"),
    "type twice": _Illegal("'<type>:<type>:0'", lambda kind, _other, _past, _wrap, _n: f"{kind}:{kind}:0"),
    "two indices": _Illegal("'0,1'", lambda _type, _other, _past, _wrap, _n: "0,1"),
}

# Sampled from lists, which is much cheaper to draw than building each from parts; the simplest come first.
_INDEXED = [DeviceForm(kind, index) for index in range(4) for kind in INDEXED_KINDS]
_SETTABLE = [*_INDEXED, *(DeviceForm(kind) for kind in CURRENT_KINDS)]

indexed_forms = st.sampled_from(_INDEXED)
settable_forms = st.sampled_from(_SETTABLE)
"""Every legal form that `set_device` takes."""
forms = st.sampled_from([*_SETTABLE, DeviceForm("None")])
# Each form once: the number makes no difference to some kinds. So the default effort is enough to try them all.
_NUMBERS = (0, 1, 2, 3, 125, 126, 253, 254, 255, 256, 300)
_ILLEGAL_FORMS = {repr(form): form for number in _NUMBERS for form in (IllegalForm(kind, number) for kind in sorted(_ILLEGAL))}
illegal_forms = st.sampled_from(list(_ILLEGAL_FORMS.values()))
