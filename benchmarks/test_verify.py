"""What it costs to verify a very large package: 10,000 clauses, each with 100 examples. Goal: at most 5 s and 300 MB.

The peer is what no reader can do without: parsing the report's JSON and hashing the files. Time and memory are of a fresh process, start-up
included; its peak is no lower than that of the process that started it.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "reports"))

from report_factory import make_failing_report

from conformance.clauses import Clause, Level, Subject, Tier
from reports.levels import finished
from reports.model import Report
from reports.package import package_files, write_package
from reports.rendering import REPORT
from reports.verification.contract import Contract

CLAUSES, EXAMPLES = 10_000, 100
_DIGEST = "0" * 64


def _clauses() -> Iterator[Clause]:
    for number in range(CLAUSES):
        area, index = divmod(number, 250)
        name = f"BIG{chr(65 + area % 26)}{chr(65 + area // 26)}"
        text = f"What clause {number} promises of a backend, in a sentence of the usual length, with an example in it."
        yield Clause(f"{name}-{index + 1}", Level.MUST, None, text, Subject.BACKEND, (Tier.DEVICE,), known_gap=False)


def big_contract() -> Contract:
    """A contract of that many clauses."""
    clauses = {clause.id: clause for clause in _clauses()}
    areas = dict.fromkeys((clause.area for clause in clauses.values()), "A large area")
    return Contract("2026.11", MappingProxyType(clauses), areas, _DIGEST)


def big_report() -> Report:
    """A report under it: one clause in fifty failed, with all that shows a failure."""
    document: dict[str, Any] = json.loads(make_failing_report().to_bytes())
    contract = big_contract()
    failure = next(check["failure"] for check in document["checks"] if check["name"].endswith("str-3"))
    document["areas"] = [{"name": name, "title": title} for name, title in contract.areas.items()]
    document["clauses"], document["checks"] = [], []
    for number, clause in enumerate(contract.clauses.values()):
        fails = number % 50 == 0
        check = {
            "name": f"conformance/test_big.py::test_{clause.id}",
            "tier": "device",
            "outcome": "fail" if fails else "pass",
            "seconds": 0.25,
        }
        check |= {"examples_run": EXAMPLES, "examples_discarded": 2}
        document["checks"].append(check | {"said": "asked for 1, got 2", "failure": failure} if fails else check)
        row = {"id": clause.id, "level": "MUST", "subject": "backend", "tiers": ["device"], "outcome": "pass", "text": clause.text}
        document["clauses"].append(row | {"checks": [check["name"]]})
    document["checks"].sort(key=lambda check: check["name"])
    document.pop("exceptions")
    document["run"]["argv"] = [word for word in document["run"]["argv"] if "known-failures" not in word]
    document["run"]["checks"] = document["run"]["reported"] = CLAUSES
    document["suite"]["contract_digest"] = _DIGEST
    return finished(Report.from_bytes(json.dumps(document).encode()))


_VERIFY = """
import pickle, resource, sys
from pathlib import Path
from reports.safe_archive import read_package
from reports.verification.examining import verify_files
from reports.verification.contract import Contract
contract = Contract(**pickle.loads(Path(sys.argv[2]).read_bytes()))
verification = verify_files(read_package(Path(sys.argv[1])), sys.argv[1], contract=contract)
assert not verification.findings, verification.findings[:3]
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""
_PEER = """
import hashlib, json, resource, sys
from pathlib import Path
for path in Path(sys.argv[1]).iterdir():
    hashlib.sha256(path.read_bytes())
json.loads((Path(sys.argv[1]) / "report.json").read_bytes())
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder, with its contract beside it."""
    path: Path = tmp_path_factory.mktemp("big") / "out"
    files = package_files(big_report())
    write_package(path, files)
    contract = big_contract()
    fields = {**vars(contract), "clauses": dict(contract.clauses)}
    path.with_name("contract").write_bytes(pickle.dumps(fields))
    print(f"\n{len(files[REPORT]) >> 10} KiB of report, {sum(map(len, files.values())) >> 10} KiB in all")
    return path


def _measured(benchmark: BenchmarkFixture, program: str, package: Path) -> None:
    """Run it in a fresh process; CPU seconds and peak MiB go into the benchmark's extra information, and are printed."""
    found: list[tuple[float, float]] = []

    def once() -> None:
        command = [sys.executable, "-c", program, str(package), str(package.with_name("contract"))]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, memory = map(float, ended.stdout.split())
        found.append((seconds, memory))

    benchmark.pedantic(once, rounds=3)
    benchmark.extra_info |= {"cpu_seconds": min(seconds for seconds, _ in found), "peak_mib": max(memory for _, memory in found)}
    print(f"{benchmark.name}: {benchmark.extra_info}")


@pytest.mark.benchmark(group="verify 10,000 clauses")
def test_peer_parse_and_hash(benchmark: BenchmarkFixture, package: Path) -> None:
    _measured(benchmark, _PEER, package)


@pytest.mark.benchmark(group="verify 10,000 clauses")
def test_verify(benchmark: BenchmarkFixture, package: Path) -> None:
    _measured(benchmark, _VERIFY, package)
