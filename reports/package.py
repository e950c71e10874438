"""A package on disk: fixed names, written whole or not at all.

For: putting a report's files into a folder or a `.tar.gz`, so that a reader finds either the earlier package or the new one. Not for: what
is in the files (`rendering/`), or reading packages of strangers (`verify`).
"""

from __future__ import annotations

import ctypes
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reports.errors import PackageError
from reports.model import Report
from reports.rendering import FILES, SIGNATURE, STATEMENT, render_all

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ARCHIVE_SUFFIX = ".tar.gz"
NAMES = (*FILES, SIGNATURE)
_HOLDER = "accelerator-conformance-"  # in the name of a folder in which a package is made
_SECONDS_UNTIL_LEFT = 3600.0  # a package is made in far less
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def package_files(report: Report, key: Ed25519PrivateKey | None = None) -> dict[str, bytes]:
    """Every file of the package by name; with a key, signed."""
    files = render_all(report.to_bytes())
    if key is not None:
        from reports.signing import sign

        files[SIGNATURE] = sign(files[STATEMENT], key)
    return files


def archive(files: Mapping[str, bytes]) -> bytes:
    """The package as a `.tar.gz`; the same files give the same bytes: plain files, in a fixed order, without times or owners."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(files, key=NAMES.index):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return buffer.getvalue()


def check_target(target: Path) -> None:
    """Return where a package can be written at `target`: nothing, an empty folder, or an earlier package is there. What a killed run left
    half written beside it is removed.

    Raises:
        PackageError: it cannot; the message says why.
    """
    if target.name in ("", ".."):
        raise PackageError(
            f"{target}: this names no folder that could be put in its place; name one that is new or holds a package"
        )
    if target.is_symlink():
        raise PackageError(f"{target}: this is a link; name the place itself")
    if target.is_dir():
        if _is_archive(target):
            raise PackageError(f"{target}: this is a folder, and the name asks for an archive")
        others = sorted({entry.name for entry in target.iterdir()} - set(NAMES))
        if others:
            raise PackageError(
                f"{target}: this folder holds {others[0]!r}, which is no part of a package; name an empty or new folder"
            )
    elif target.exists() and not _is_archive(target):
        raise PackageError(f"{target}: a file is there; name a folder, or a file that ends in {ARCHIVE_SUFFIX}")
    try:
        _remove_left(target)
        with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=_prefix(target)):
            pass
    except OSError as error:
        raise PackageError(f"{target}: cannot write in {target.absolute().parent}: {error.strerror}") from error


def write_package(target: Path, files: Mapping[str, bytes]) -> None:
    """Put the package at `target`, a folder or a name that ends in `.tar.gz`; an earlier package there is replaced in one step.

    Raises:
        PackageError: it cannot be written; what was at `target` is as it was.
    """
    check_target(target)
    parent = target.absolute().parent
    try:
        holder = Path(tempfile.mkdtemp(dir=parent, prefix=_prefix(target)))
        try:
            made = holder / target.name
            if _is_archive(target):
                _write(made, archive(files))
                made.replace(target)
            else:
                made.mkdir()
                for name, data in files.items():
                    _write(made / name, data)
                _exchange(made, target)
        finally:
            shutil.rmtree(holder, ignore_errors=True)
    except OSError as error:
        raise PackageError(f"{target}: cannot write the package: {error.strerror}") from error


def _prefix(target: Path) -> str:
    return f".{target.name}.{_HOLDER}"


def _remove_left(target: Path) -> None:
    """Remove folders in which a run that was killed was making a package; younger ones may be of a run that goes on."""
    parent = target.absolute().parent
    for path in parent.iterdir() if parent.is_dir() else ():
        is_ours = path.name.startswith(_prefix(target)) and path.is_dir() and not path.is_symlink()
        if is_ours and time.time() - path.stat().st_mtime > _SECONDS_UNTIL_LEFT:
            shutil.rmtree(path, ignore_errors=True)


def _is_archive(target: Path) -> bool:
    return target.name.endswith(ARCHIVE_SUFFIX)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _exchange(made: Path, target: Path) -> None:
    """Put `made` where `target` is, and what was there where `made` was."""
    if not target.exists():
        made.rename(target)
        return
    library = ctypes.CDLL(None, use_errno=True)
    swap = getattr(library, "renameat2", None)
    if swap is not None and swap(_AT_FDCWD, os.fsencode(made), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return
    # Without an exchange in one step: the earlier package is whole at every moment, for an instant under another name.
    earlier = made.with_name(f"{made.name}.earlier")
    target.rename(earlier)
    try:
        made.rename(target)
    except BaseException:
        earlier.rename(target)
        raise
