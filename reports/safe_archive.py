"""A package from a stranger, read into memory.

For: a folder, or the `.tar.gz` of one, as file names and bytes; every way in which reading could do harm is refused with a reason of its
own: names that lead elsewhere, links, devices, bombs, members twice or under names that a file system could take for one, damage, bytes
after the end. It writes nothing, anywhere. Not for: what the files say, or which there must be (`verification.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reports.errors import ArchiveError
from reports.tar_reading import members
from reports.untrusted_text import printable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 16


@dataclass(frozen=True)
class ArchiveLimits:
    """What a package may cost: numbers of bytes, but for `members` and `ratio`.

    `packed` bounds the archive's own size, `member` one file, `total` all files; `ratio` how many bytes a packed byte may become, once more
    than `ratio_from` have come out (a small honest file may be very regular).
    """

    members: int = 64
    packed: int = 64 << 20
    member: int = 64 << 20
    total: int = 160 << 20
    ratio: int = 200
    ratio_from: int = 32 << 20


DEFAULT_LIMITS = ArchiveLimits()


def read_package(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> dict[str, bytes]:
    """The files of the package at `path`, by name, in order of name.

    Raises:
        ArchiveError: it cannot be read, or not safely.
    """
    where = printable(str(path))
    try:
        if path.is_dir():
            return _gathered(_files_of_folder(path, limits), where, limits)
        with _opened(path, where) as file:
            return _gathered(_files_of_archive(file, where, limits), where, limits)
    except OSError as error:
        raise ArchiveError("package-unreadable", where, error.strerror or type(error).__name__) from error
    except ValueError as error:  # a NUL in the path
        raise ArchiveError("package-unreadable", where, str(error)) from error


def read_file(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> bytes:
    """The bytes of one plain file.

    Raises:
        ArchiveError: it cannot be read, or is larger than a member may be.
    """
    where = printable(str(path))
    try:
        with _opened(path, where) as file:
            contents = file.read(limits.member + 1)
    except OSError as error:
        raise ArchiveError("package-unreadable", where, error.strerror or type(error).__name__) from error
    if len(contents) > limits.member:
        raise ArchiveError("archive-too-large", where, f"more than {limits.member} bytes")
    return contents


def _gathered(files: Iterable[tuple[str, bytes]], where: str, limits: ArchiveLimits) -> dict[str, bytes]:
    """All files, none twice, within the limit of all together."""
    found: dict[str, bytes] = {}
    folded: dict[str, str] = {}
    total = 0
    for name, contents in files:
        if name in found:
            raise ArchiveError("archive-duplicate", where, f"holds {name} twice")
        if name.lower() in folded:  # names are ASCII, so this is all that a file system can fold
            raise ArchiveError("archive-collision", where, f"holds {folded[name.lower()]} and {name}, one file on some systems")
        found[name], folded[name.lower()] = contents, name
        total += len(contents)
        if total > limits.total:
            raise ArchiveError("archive-too-large", where, f"more than {limits.total} bytes in all")
        if len(found) > limits.members:
            raise ArchiveError("archive-too-many", where, f"more than {limits.members} files")
    return dict(sorted(found.items()))


def _checked_name(name: str, where: str) -> str:
    if _NAME.fullmatch(name) is None:
        text = "is absolute or leads elsewhere" if "/" in name or "\\" in name or name == ".." else "is no plain file name"
        raise ArchiveError("archive-name", where, f"the name '{printable(name, longest=100)}' {text}")
    return name


# Folders


def _files_of_folder(path: Path, limits: ArchiveLimits) -> Iterator[tuple[str, bytes]]:
    where = printable(str(path))
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= limits.members:
                    raise ArchiveError("archive-too-many", where, f"more than {limits.members} files")
                yield _checked_name(entry.name, where), _contents(folder, entry.name, where, limits)
    finally:
        os.close(folder)


def _contents(folder: int, name: str, where: str, limits: ArchiveLimits) -> bytes:
    """The bytes of a plain file, opened before it is looked at, so that it cannot be exchanged in between."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=folder)
    except OSError as error:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise ArchiveError("archive-link", where, f"{name} is a symbolic link; a package holds plain files only") from error
        if not stat.S_ISREG(mode):
            raise ArchiveError("archive-special", where, f"{name} is no plain file") from error
        raise ArchiveError("package-unreadable", f"{where}/{name}", error.strerror or type(error).__name__) from error
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise ArchiveError("archive-folder", where, f"{name} is a folder; a package has none")
        if not stat.S_ISREG(status.st_mode):
            raise ArchiveError("archive-special", where, f"{name} is no plain file")
        file = open(handle, "rb", closefd=False)  # noqa: SIM115 - the descriptor is closed below
        contents = b"" if status.st_size > limits.member else file.read(limits.member + 1)
        if status.st_size > limits.member or len(contents) > limits.member:
            raise ArchiveError("archive-too-large", where, f"{name} has more than {limits.member} bytes")
        return contents
    finally:
        os.close(handle)


# Archives


@contextlib.contextmanager
def _opened(path: Path, where: str) -> Iterator[BinaryIO]:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ArchiveError("package-unreadable", where, "neither a folder nor a file")
        yield file


def _files_of_archive(file: BinaryIO, where: str, limits: ArchiveLimits) -> Iterator[tuple[str, bytes]]:
    """The plain files; the one folder that `tar czf out.tar.gz out` puts around them is taken off."""
    around: str | None = None
    stream = _Unpacked(file, where, limits)
    for count, (name, contents) in enumerate(members(stream.read, where, limits.member)):
        if count > limits.members:
            raise ArchiveError("archive-too-many", where, f"more than {limits.members} members")
        if contents is None:
            if count or around is not None:
                raise ArchiveError("archive-folder", where, f"the folder '{printable(name, longest=100)}' inside the package")
            around = name.rstrip("/")
            if around not in (".", ""):
                _checked_name(around, where)
            elif not around:
                raise ArchiveError("archive-name", where, "the root folder as a member")
            continue
        inner = name if around is None else name.removeprefix(f"{around}/")
        if around is not None and inner == name:
            raise ArchiveError("archive-name", where, f"'{printable(name, longest=100)}' lies outside the folder {around}")
        yield _checked_name(inner, where), contents


class _Unpacked:
    """A gzip stream's contents, unpacked no further than asked for, and never past the limits."""

    def __init__(self, file: BinaryIO, where: str, limits: ArchiveLimits) -> None:
        self._file, self._where, self._limits = file, where, limits
        self._unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._packed = self._total = 0
        self._pending = self._next_packed()
        if not self._pending.startswith(_GZIP):
            raise ArchiveError("package-unreadable", where, "neither a folder nor a .tar.gz archive")

    def read(self, size: int) -> bytes:
        """`size` bytes; fewer at the end of the stream, which is checked to be the end of the file too."""
        parts = []
        missing = size
        while missing and (part := self._some(min(missing, _CHUNK))):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        while not self._unpacker.eof:
            packed = self._unpacker.unconsumed_tail or self._pending or self._next_packed()
            self._pending = b""
            try:
                part = self._unpacker.decompress(packed, size)
            except zlib.error as error:
                raise ArchiveError("archive-damaged", self._where, f"the gzip stream is damaged: {error}") from error
            self._total += len(part)
            self._check_cost()
            if part:
                return part
            if not packed and not self._unpacker.eof:
                raise ArchiveError("archive-truncated", self._where, "the gzip stream ends early")
        after = self._unpacker.unused_data or self._next_packed()
        if after.startswith(_GZIP):
            raise ArchiveError("archive-concatenated", self._where, "a second gzip stream after the first")
        if after:
            raise ArchiveError("archive-trailing", self._where, "bytes after the end of the gzip stream")
        return b""

    def _next_packed(self) -> bytes:
        packed = self._file.read(_CHUNK)
        self._packed += len(packed)
        return packed

    def _check_cost(self) -> None:
        limits = self._limits
        if self._packed > limits.packed:
            raise ArchiveError("archive-too-large", self._where, f"an archive of more than {limits.packed} bytes")
        if self._total > limits.total + (1 << 20):  # headers and padding
            raise ArchiveError("archive-too-large", self._where, f"unpacks to more than {limits.total} bytes")
        if self._total > limits.ratio_from and self._total > limits.ratio * self._packed:
            raise ArchiveError("archive-bomb", self._where, f"unpacks to more than {limits.ratio} times its size")
