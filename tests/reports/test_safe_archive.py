"""Packages from strangers: honest ones are read, and every attack is refused for its own reason, without a byte written."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_making import END, bomb, member, package, packed

from reports.errors import ArchiveError
from reports.safe_archive import ArchiveLimits, read_package

_FILES = {"badge.svg": b"<svg/>", "report.json": b"{}\n" * 300}
_HONEST = [member(name.encode(), contents) for name, contents in _FILES.items()]
_SMALL = ArchiveLimits(members=8, packed=1 << 20, member=1 << 20, total=3 << 20, ratio=100, ratio_from=1 << 18)


def _by_tarfile(format_: int, prefix: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=format_) as archive:
        if prefix:
            folder = tarfile.TarInfo(prefix)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        for name, contents in _FILES.items():
            info = tarfile.TarInfo(f"{prefix}/{name}" if prefix else name)
            info.size = len(contents)
            archive.addfile(info, io.BytesIO(contents))
    return out.getvalue()


_READ: dict[str, bytes] = {
    "by hand": package(_FILES),
    "ustar": _by_tarfile(tarfile.USTAR_FORMAT),
    "gnu": _by_tarfile(tarfile.GNU_FORMAT),
    "pax without headers": _by_tarfile(tarfile.PAX_FORMAT),
    "in a folder": _by_tarfile(tarfile.GNU_FORMAT, "out"),
    "in the current folder": _by_tarfile(tarfile.GNU_FORMAT, "."),
    "with a name in the gzip header": gzip.compress(b"".join(_HONEST) + END)[:3] + b"\x08" + b"\0" * 6
    + b"../../etc/passwd\0" + gzip.compress(b"".join(_HONEST) + END)[10:],
}  # fmt: skip


@pytest.mark.parametrize("data", _READ.values(), ids=_READ)
def test_an_honest_archive_is_read(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out.tar.gz"
    path.write_bytes(data)
    assert read_package(path) == _FILES
    assert list(read_package(path)) == sorted(_FILES)


def _with(*members: bytes) -> bytes:
    return packed([*_HONEST, *members])


_WHOLE = package(_FILES)
_ARCHIVES: dict[str, tuple[bytes, str]] = {
    "absolute": (_with(member(b"/etc/passwd", b"x")), "archive-name"),
    "traversal": (_with(member(b"../evil", b"x")), "archive-name"),
    "traversal inside": (_with(member(b"a/../../evil", b"x")), "archive-name"),
    "backslash": (_with(member(b"..\\evil", b"x")), "archive-name"),
    "drive": (_with(member(b"C:evil", b"x")), "archive-name"),
    "dot dot": (_with(member(b"..", b"x")), "archive-name"),
    "empty name": (_with(member(b"", b"x")), "archive-name"),
    "hidden": (_with(member(b".bashrc", b"x")), "archive-name"),
    "newline": (_with(member(b"a\nb", b"x")), "archive-name"),
    "escape": (_with(member(b"\x1b[2J", b"x")), "archive-name"),
    "not ASCII": (_with(member("réport.json".encode(), b"x")), "archive-name"),
    "full-width letters": (_with(member("ｒeport.json".encode(), b"x")), "archive-name"),
    "after a NUL": (_with(member(b"report.json\0/../evil", b"x")), "archive-name"),
    "option": (_with(member(b"--checkpoint-action=exec=sh", b"x")), "archive-name"),
    "sub-folder": (_with(member(b"sub/file", b"x")), "archive-name"),
    "prefix": (_with(member(b"evil", b"x")[:345] + b"/etc" + bytes(163) + b"x".ljust(512, b"\0")), "archive-damaged"),
    "folder later": (_with(member(b"sub", kind=b"5")), "archive-folder"),
    "two folders": (packed([member(b"a", kind=b"5"), member(b"b", kind=b"5")]), "archive-folder"),
    "outside its folder": (packed([member(b"a/", kind=b"5"), member(b"b/report.json")]), "archive-name"),
    "folder with traversal": (packed([member(b"../a", kind=b"5"), member(b"../a/report.json")]), "archive-name"),
    "root folder": (packed([member(b"/", kind=b"5"), member(b"/report.json")]), "archive-name"),
    "folder with contents": (packed([member(b"a", b"x", b"5")]), "archive-damaged"),
    "symbolic link": (_with(member(b"evil", kind=b"2", link=b"/etc/passwd")), "archive-link"),
    "hard link": (_with(member(b"evil", kind=b"1", link=b"report.json")), "archive-link"),
    "file with a target": (_with(member(b"evil", b"x", link=b"/etc/passwd")), "archive-link"),
    "character device": (_with(member(b"evil", kind=b"3")), "archive-special"),
    "block device": (_with(member(b"evil", kind=b"4")), "archive-special"),
    "FIFO": (_with(member(b"evil", kind=b"6")), "archive-special"),
    "contiguous": (_with(member(b"evil", b"x", b"7")), "archive-special"),
    "unknown type": (_with(member(b"evil", b"x", b"Z")), "archive-special"),
    "sparse": (_with(member(b"evil", b"x", b"S")), "archive-sparse"),
    "pax header": (_with(member(b"evil", b"16 path=/etc/xx\n", b"x")), "archive-extended"),
    "global pax header": (_with(member(b"evil", b"16 path=/etc/xx\n", b"g")), "archive-extended"),
    "GNU long name": (_with(member(b"././@LongLink", b"x" * 200, b"L")), "archive-extended"),
    "GNU long link": (_with(member(b"././@LongLink", b"x" * 200, b"K")), "archive-extended"),
    "volume label": (_with(member(b"evil", kind=b"V")), "archive-extended"),
    "twice": (_with(_HONEST[0]), "archive-duplicate"),
    "twice with other contents": (_with(member(b"report.json", b"[]")), "archive-duplicate"),
    "case": (_with(member(b"Report.json", b"x")), "archive-collision"),
    "many members": (packed(member(b"m%d" % number) for number in range(9)), "archive-too-many"),
    "many folders": (packed([member(b"a", kind=b"5")] * 9), "archive-folder"),
    "large member": (_with(member(b"big", size=(1 << 20) + 1)), "archive-too-large"),
    "100 MB string": (_with(member(b"big", size=100 << 20)), "archive-too-large"),
    "large in all": (packed(member(b"m%d" % number, os.urandom(1 << 20)) for number in range(3)), "archive-too-large"),
    "size past the end": (_with(member(b"evil", b"x", size=5000)), "archive-truncated"),
    "size in base 256": (_with(member(b"evil")[:124] + b"\x80" + bytes(11) + member(b"evil")[136:]), "archive-damaged"),
    "negative size": (_with(member(b"evil")[:124] + b"-0000000001\0" + member(b"evil")[136:]), "archive-damaged"),
    "wrong checksum": (_with(b"X" + member(b"evil")[1:]), "archive-damaged"),
    "no magic": (_with(member(b"evil", magic=bytes(8))), "archive-damaged"),
    "hidden in the padding": (packed([_HONEST[0][:-3] + b"abc"]), "archive-trailing"),
    "hidden after the end": (packed(_HONEST, END + b"hidden"), "archive-trailing"),
    "a second archive": (packed(_HONEST, END + b"".join(_HONEST) + END), "archive-trailing"),
    "one end block": (packed(_HONEST, END[:512]), "archive-truncated"),
    "no end": (packed(_HONEST, b""), "archive-truncated"),
    "half a member": (gzip.compress(b"".join(_HONEST)[:1200]), "archive-truncated"),
    "half a header": (gzip.compress(_HONEST[0][:200]), "archive-truncated"),
    "truncated": (_WHOLE[: len(_WHOLE) // 2], "archive-truncated"),
    "without its checksum": (_WHOLE[:-8], "archive-truncated"),
    "wrong gzip checksum": (_WHOLE[:-8] + b"abcd" + _WHOLE[-4:], "archive-damaged"),
    "damaged": (_WHOLE[:30] + b"\xff\xff\xff\xff" + _WHOLE[34:], "archive-damaged"),
    "trailing bytes": (_WHOLE + b"\0trailing", "archive-trailing"),
    "trailing zeros": (_WHOLE + bytes(100), "archive-trailing"),
    "two gzip streams": (_WHOLE + _WHOLE, "archive-concatenated"),
    "split into two gzip streams": (
        gzip.compress(b"".join(_HONEST)) + gzip.compress(END), "archive-concatenated",
    ),
    "bomb": (bomb(1 << 20), "archive-bomb"),
    "zip": (b"PK\x03\x04" + bytes(100), "package-unreadable"),
    "plain tar": (b"".join(_HONEST) + END, "package-unreadable"),
    "bare report": (b"{}\n", "package-unreadable"),
    "empty": (b"", "package-unreadable"),
    "gzip of something": (gzip.compress(b"hello" * 200), "archive-damaged"),
    "gzip of nothing": (gzip.compress(b""), "archive-truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), _ARCHIVES.values(), ids=_ARCHIVES)
def test_an_attack_in_an_archive_is_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "out.tar.gz"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        read_package(path, _SMALL)
    assert caught.value.reason == reason, str(caught.value)
    assert str(caught.value).isprintable()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.tar.gz"]


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _many(path: Path) -> None:
    for number in range(9):
        path.with_name(f"m{number}").touch()


_IN_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "symbolic link": (lambda path: path.symlink_to("report.json"), "archive-link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "archive-link"),
    "link to a folder": (lambda path: path.symlink_to("."), "archive-link"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "archive-link"),
    "FIFO": (os.mkfifo, "archive-special"),
    "socket": (_socket, "archive-special"),
    "folder": (Path.mkdir, "archive-folder"),
    "hidden": (lambda path: path.with_name(".hidden").touch(), "archive-name"),
    "not ASCII": (lambda path: path.with_name("é").touch(), "archive-name"),
    "not even text": (lambda path: os.close(os.open(bytes(path.parent) + b"/\xff\x1b[2J", os.O_CREAT)), "archive-name"),
    "case": (lambda path: path.with_name("REPORT.json").touch(), "archive-collision"),
    "large": (lambda path: path.write_bytes(bytes((1 << 20) + 1)), "archive-too-large"),
    "sparse and large": (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "archive-too-large"),
    "many": (_many, "archive-too-many"),
}


@pytest.mark.parametrize(("make", "reason"), _IN_FOLDERS.values(), ids=_IN_FOLDERS)
def test_an_attack_in_a_folder_is_refused(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    for name, contents in _FILES.items():
        (tmp_path / name).write_bytes(contents)
    assert read_package(tmp_path, _SMALL) == _FILES
    make(tmp_path / "evil")
    with pytest.raises(ArchiveError) as caught:
        read_package(tmp_path, _SMALL)
    assert caught.value.reason == reason, str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/nowhere/at/all", "\0"])
def test_what_is_neither_folder_nor_file_cannot_be_read(path: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        read_package(Path(path))
    assert caught.value.reason == "package-unreadable"


def test_a_bomb_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    """A thousandfold bomb under the real limits ends at the ratio, long before its size."""
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(bomb(60 << 20))
    with pytest.raises(ArchiveError) as caught:
        read_package(path)
    assert caught.value.reason == "archive-bomb"
