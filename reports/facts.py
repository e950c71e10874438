"""What names a run beside its results: the suite's code, the machine, the environment.

For: versions, digests, clean or dirty tree, operating system, visible-devices variables; nothing here touches a device. Not for: the
backend and its devices (`backend_facts.py`).
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from conformance import CONTRACT_REVISION
from reports.contract_digest import contract_digest
from reports.model import HostFacts, SuiteFacts, TreeState, VisibleDevicesLayer

DISTRIBUTION = "accelerator-conformance"
_PROJECT = Path(__file__).parent.parent
PACKAGES = ("conformance", "fakes", "harness", "reports")
"""The packages of this project whose digests a report has."""
_CONFIGURATION = (  # of pytest, in the folder that holds a checkout
    *("conftest.py", "pyproject.toml", "pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"),
)
_MOST_CHANGED = 20
_LIBRARIES = (
    *("attrs", "hypothesis", "numpy", "pydantic", "pytest", "pytest-timeout", "pytest-xdist", "torch", "triton"),
    *("torch-musa", "torch-npu", "torch-mlu", "intel-extension-for-pytorch", "pynvml", "nvidia-ml-py", "pymtml"),
)
"""Distributions whose versions are told where they are installed."""


def suite_facts(conftests: Iterable[Path] = ()) -> SuiteFacts:
    """The code that does the testing. `conftests` are the files of that name that pytest has loaded; any but the suite's own is a change
    of the suite, since it could do anything with a check."""
    commit, tree, changed = tree_state(_PROJECT)
    own = _PROJECT / "conformance" / "conftest.py"
    foreign = [_shown(path) for path in conftests if path.resolve() != own.resolve()]
    if foreign:
        tree, changed = "dirty", sorted({*changed, *foreign})
    return SuiteFacts(
        version=_version(DISTRIBUTION),
        contract_revision=CONTRACT_REVISION,
        contract_digest=contract_digest(),
        digests={name: folder_digest(_PROJECT / name) for name in PACKAGES},
        commit=commit,
        tree=tree,
        changed=tuple(changed[:_MOST_CHANGED]),
    )


def _shown(path: Path) -> str:
    """A path in this project as seen from it; of others the end, which says enough and tells no one's folders."""
    resolved = path.resolve()
    inside = resolved.is_relative_to(_PROJECT.resolve())
    return resolved.relative_to(_PROJECT.resolve()).as_posix() if inside else Path(*resolved.parts[-2:]).as_posix()


def folder_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a package's Python files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def tree_state(project: Path) -> tuple[str, TreeState, list[str]]:
    """The commit, whether the code is as committed or as published, and the files that are not.

    In a checkout version control tells; elsewhere the digests that the installer wrote down do.
    """
    commit = _git(project, "rev-parse", "HEAD")
    if commit is not None and _git(project, "rev-parse", "--show-toplevel") == str(project.resolve()):
        status = _git(project, "status", "--porcelain", "--untracked-files=all", "--", *PACKAGES, *_CONFIGURATION)
        if status is None:
            return commit, "unknown", []
        changed = [line[3:] for line in status.splitlines() if line]
        return commit, "dirty" if changed else "clean", changed
    recorded = _recorded_digests(project)
    if not recorded:
        return "", "unknown", []
    present = {path.relative_to(project).as_posix() for name in PACKAGES for path in (project / name).rglob("*.py")}
    changed = [name for name, digest in recorded.items() if not _has_digest(project / name, digest)]
    changed = sorted({*changed, *(present - set(recorded))})
    return "", "dirty" if changed else "clean", changed


def _git(project: Path, *arguments: str) -> str | None:
    """What git answers, without the final newline; None where it cannot."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        answer = subprocess.run(
            ["git", "-c", "core.quotepath=off", "-C", str(project), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None


def _recorded_digests(project: Path) -> dict[str, str]:
    """Digests by path of our Python files as the installer recorded them; empty where they lie elsewhere or none are recorded."""
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for path in distribution.files or ():
        ours = path.suffix == ".py" and path.parts[0] in PACKAGES and path.hash is not None and path.hash.mode == "sha256"
        if ours and Path(str(path.locate())).resolve() == (project / path).resolve():
            found[path.as_posix()] = path.hash.value if path.hash is not None else ""
    return found


def _has_digest(path: Path, recorded: str) -> bool:
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == recorded


def host_facts(grammar: object, environment: Mapping[str, str]) -> HostFacts:
    """The machine, without its devices, driver and runtime. `grammar` is the adapter's visible-devices grammar, or None."""
    import torch

    return HostFacts(
        devices=(),
        driver="",
        runtime="",
        torch=torch.__version__,
        torch_build=torch.__config__.show().strip(),
        os=_operating_system(),
        kernel=platform.release(),
        machine=platform.machine(),
        python=platform.python_version(),
        visible_devices=visible_devices_layers(grammar, environment),
        libraries={name: _version(name) for name in _LIBRARIES if _version(name)},
    )


def visible_devices_layers(grammar: object, environment: Mapping[str, str]) -> tuple[VisibleDevicesLayer, ...]:
    """Every variable that the adapter's driver reads, in its order, then those of other vendors that are set."""
    from harness.accelerator.visible_devices import GRAMMARS, VisibleDevicesGrammar, read_visible_devices

    decided: set[str] = set()
    variables: tuple[str, ...] = ()
    if isinstance(grammar, VisibleDevicesGrammar):
        variables = (*grammar.variables, *grammar.container_variables)
        try:
            decided = {layer.variable for layer in read_visible_devices(grammar, environment=environment).deciding}
        except Exception:  # noqa: BLE001 - a fault may be in force; the checks of VIS report it
            decided = set()
    others = {name for known in GRAMMARS.values() for name in (*known.variables, *known.container_variables) if name in environment}
    return tuple(
        VisibleDevicesLayer(variable=name, value=_utf8(environment.get(name)), decided=name in decided)
        for name in (*dict.fromkeys(variables), *sorted(others - set(variables)))
    )


def _utf8(value: str | None) -> str | None:
    return None if value is None else value.encode("utf-8", "backslashreplace").decode()


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.version()}"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
