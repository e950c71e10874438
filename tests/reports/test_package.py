"""Packages on disk: fixed names, the same bytes, and an earlier one never damaged."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from report_factory import make_failing_report, make_package, make_report

from reports import package, signing
from reports.errors import PackageError, SigningError
from reports.package import archive, check_target, package_files, write_package
from reports.rendering import FILES, SIGNATURE, render_all

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_everything_comes_from_the_report(tmp_path: Path) -> None:
    files = make_package(make_failing_report())
    assert tuple(files) == FILES
    assert render_all(files["report.json"]) == files


def test_a_folder_holds_the_files_and_nothing_else(tmp_path: Path) -> None:
    write_package(tmp_path / "out", make_package())
    assert contents(tmp_path / "out") == make_package()
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_later_package_replaces_an_earlier_one(tmp_path: Path) -> None:
    later = make_package(make_failing_report())
    for target in (tmp_path / "out", tmp_path / "out.tar.gz"):
        write_package(target, package_files(make_report(), KEY))
        write_package(target, later)
    assert contents(tmp_path / "out") == later
    assert (tmp_path / "out.tar.gz").read_bytes() == archive(later)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.tar.gz"]


def test_an_archive_is_the_same_bytes_and_plain(tmp_path: Path) -> None:
    files = package_files(make_report(), KEY)
    assert archive(files) == archive(dict(reversed(files.items())))
    with tarfile.open(fileobj=io.BytesIO(archive(files))) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == [*FILES, SIGNATURE]
        assert {(member.mtime, member.uid, member.gid, member.uname, member.mode, member.isreg()) for member in members} == {
            (0, 0, 0, "", 0o644, True)
        }


@pytest.mark.parametrize("name", ["out", "out.tar.gz"])
@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_package(name: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / name
    write_package(target, make_package())
    before = contents(target) if target.is_dir() else target.read_bytes()

    def full(*arguments: Any, **keywords: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "open":
        monkeypatch.setattr(package, "_write", full)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif target.is_dir():
        monkeypatch.setattr(package, "_exchange", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(PackageError, match="No space left on device"):
        write_package(target, make_package(make_failing_report()))
    assert (contents(target) if target.is_dir() else target.read_bytes()) == before
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Nothing is cleaned up behind it."""

    def killed(*arguments: Any, **keywords: Any) -> Any:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(package, "_write", killed)
        dying.setattr(package.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            write_package(tmp_path / "out", make_package())
    left = list(tmp_path.iterdir())
    assert left
    (tmp_path / ".out.other").mkdir()
    check_target(tmp_path / "out")
    assert all(path.exists() for path in left), "a run that goes on may be writing there"
    for path in (*left, tmp_path / ".out.other"):
        os.utime(path, (0, 0))
    check_target(tmp_path / "other")
    assert all(path.exists() for path in left)
    check_target(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [".out.other"]


def test_without_an_exchange_in_one_step_two_renames_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        def __init__(self, *arguments: object, **keywords: object) -> None: ...

    monkeypatch.setattr(package.ctypes, "CDLL", Without)
    write_package(tmp_path / "out", make_package())
    write_package(tmp_path / "out", make_package(make_failing_report()))
    assert contents(tmp_path / "out") == make_package(make_failing_report())
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_places_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    (tmp_path / "folder.tar.gz").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    for name, reason in (
        ("other", "'thesis.tex', which is no part of a package"),
        ("file", "a file is there"),
        ("folder.tar.gz", "the name asks for an archive"),
        ("link", "this is a link"),
        ("no/such/folder", "No such file or directory"),
        ("..", "names no folder"),
    ):
        with pytest.raises(PackageError, match=reason):
            check_target(tmp_path / name)
    check_target(tmp_path / "empty")
    check_target(tmp_path / "new")


def test_a_signature_is_over_the_statement_and_by_the_key(tmp_path: Path) -> None:
    files = package_files(make_report(), KEY)
    assert package_files(make_report(), KEY) == files
    envelope = json.loads(files[SIGNATURE])
    assert signing.signed_statement(envelope, KEY.public_key()) == files["statement.json"]
    assert envelope["signatures"][0]["keyid"] == signing.key_id(KEY.public_key())
    with pytest.raises(SigningError, match="not by this key"):
        signing.signed_statement(envelope, Ed25519PrivateKey.generate().public_key())
    for altered in ({}, {**envelope, "payload": "e30K"}, {**envelope, "payloadType": "text/plain"}, {**envelope, "signatures": []}):
        with pytest.raises(SigningError):
            signing.signed_statement(altered, KEY.public_key())


def test_keys_are_read_or_refused_with_the_remedy(tmp_path: Path) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    private.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert signing.key_id(signing.load_private_key(private).public_key()) == signing.key_id(signing.load_public_key(public))
    with pytest.raises(SigningError, match="openssl genpkey"):
        signing.load_private_key(public)
    with pytest.raises(SigningError, match="no public key"):
        signing.load_public_key(private)
    with pytest.raises(SigningError, match="No such file"):
        signing.load_private_key(tmp_path / "nowhere")
