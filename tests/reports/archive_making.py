"""Archives by hand, for what no archiver would write."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Mapping

END = bytes(1024)


def member(
    name: bytes,
    contents: bytes = b"",
    kind: bytes = b"0",
    *,
    size: int | None = None,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
) -> bytes:
    """One member of a tar archive: header, contents, padding."""
    length = len(contents) if size is None else size
    header = bytearray(
        name.ljust(100, b"\0")
        + b"0000644\0" + b"0000000\0" * 2
        + b"%011o\0" % length + b"%011o\0" % 0
        + b" " * 8 + kind + link.ljust(100, b"\0") + magic
    ).ljust(512, b"\0")  # fmt: skip
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + contents + bytes(-len(contents) % 512)


def packed(members: Iterable[bytes], end: bytes = END) -> bytes:
    """The members as a .tar.gz."""
    return gzip.compress(b"".join(members) + end, 1, mtime=0)


def package(files: Mapping[str, bytes]) -> bytes:
    """An honest .tar.gz of the files."""
    return packed(member(name.encode(), contents) for name, contents in files.items())


def bomb(size: int) -> bytes:
    """A .tar.gz whose one member unpacks to `size` zeros."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(member(b"report.json", size=size))
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return out.getvalue()
