"""The members of a tar archive from a stranger, as bytes.

For: plain files of plain names, in the ustar and GNU layouts; everything else that tar can hold (links, devices, sparse files, extended
headers) is refused by name, so nothing has to be understood that could mean two things. Nothing is written anywhere. Not for: which files
a package has (`safe_archive.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reports.errors import ArchiveError

BLOCK = 512
_END = bytes(BLOCK)
_REFUSED = {  # type of a member: (reason, what it is)
    b"1": ("archive-link", "a hard link"),
    b"2": ("archive-link", "a symbolic link"),
    b"3": ("archive-special", "a character device"),
    b"4": ("archive-special", "a block device"),
    b"6": ("archive-special", "a FIFO"),
    b"7": ("archive-special", "a contiguous file"),
    b"S": ("archive-sparse", "a sparse file"),
    b"x": ("archive-extended", "an extended header (pax)"),
    b"g": ("archive-extended", "a global extended header (pax)"),
    b"X": ("archive-extended", "an extended header (Solaris)"),
    b"L": ("archive-extended", "a long name (GNU)"),
    b"K": ("archive-extended", "a long link name (GNU)"),
    b"D": ("archive-extended", "a dumped folder (GNU)"),
    b"M": ("archive-extended", "a file continued from another volume"),
    b"V": ("archive-extended", "a volume label"),
}


def members(read: Callable[[int], bytes], where: str, largest: int) -> Iterator[tuple[str, bytes | None]]:
    """Name and contents of every member, None for a folder's contents; reads to the end of the stream.

    Args:
        read: gives exactly as many bytes as asked for, fewer only at the end.
        where: the archive's name, for messages.
        largest: the most bytes that one member may have.

    Raises:
        ArchiveError: anything but plain files and folders between two ends.
    """
    while True:
        header = _block(read, where)
        if header == _END:
            break
        name, size, kind = _header(header, where)
        if size > largest:
            raise ArchiveError("archive-too-large", where, f"the member {name!r} has {size} bytes; at most {largest} are read")
        if kind == b"5":
            if size:
                raise ArchiveError("archive-damaged", where, f"the folder {name!r} claims to have contents")
            yield name, None
            continue
        contents = read(size)
        padding = read(-size % BLOCK)
        if len(contents) < size or len(padding) < -size % BLOCK:
            raise ArchiveError("archive-truncated", where, f"ends inside the member {name!r}")
        if padding.strip(b"\0"):
            raise ArchiveError("archive-trailing", where, f"bytes are hidden after the member {name!r}")
        yield name, contents
    if _block(read, where) != _END:
        raise ArchiveError("archive-truncated", where, "the end mark of two empty blocks is not whole")
    while rest := read(1 << 16):
        if rest.strip(b"\0"):
            raise ArchiveError("archive-trailing", where, "bytes after the archive's end mark")


def _block(read: Callable[[int], bytes], where: str) -> bytes:
    block = read(BLOCK)
    if len(block) < BLOCK:
        raise ArchiveError("archive-truncated", where, "ends without the end mark of a tar archive")
    return block


def _header(block: bytes, where: str) -> tuple[str, int, bytes]:
    """Name, size and type of a member."""
    if block[257:263] not in (b"ustar\0", b"ustar "):
        raise ArchiveError("archive-damaged", where, "no tar archive in the ustar or GNU layout")
    total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _number(block[148:156], where) != total:
        raise ArchiveError("archive-damaged", where, "the checksum of a member's header is wrong")
    kind = block[156:157]
    # Looked at before the name: what is refused as a link should be called one, whatever its name.
    if kind in _REFUSED:
        reason, word = _REFUSED[kind]
        raise ArchiveError(reason, where, f"holds {word}; a package holds plain files only")
    if kind not in (b"0", b"\0", b"5"):
        raise ArchiveError("archive-special", where, f"holds a member of the unknown type {kind!r}")
    if block[157:257].strip(b"\0"):
        raise ArchiveError("archive-link", where, "a plain file with the name of a link's target")
    prefix = block[345:500].rstrip(b"\0") if block[257:263] == b"ustar\0" else b""
    raw = _text(block[:100], where)
    return (f"{_text(prefix, where)}/{raw}" if prefix else raw), _number(block[124:136], where), kind


def _text(field: bytes, where: str) -> str:
    raw, _, rest = field.partition(b"\0")
    if rest.strip(b"\0") or not raw.isascii():
        raise ArchiveError("archive-name", where, f"a member's name is not plain ASCII: {field.rstrip(bytes(1))[:100]!r}")
    return raw.decode("ascii")


def _number(field: bytes, where: str) -> int:
    digits = field.strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise ArchiveError("archive-damaged", where, f"a number in a member's header is not octal: {field!r}")
    return int(digits, 8)
