"""`statement.json`: an in-toto statement about the package's files, with the test-result predicate v0.1.

For: signing, and tools that know in-toto. Subjects are the files by SHA-256. Passed tests are clauses that passed, failed tests those that
failed in any way, warned tests all others. Not for: the signature (`reports.signing`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from reports.model import Report

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
_FAILED = frozenset({"fail", "flaky", "harness-error"})


def render(report: Report, files: Mapping[str, bytes]) -> bytes:
    """The statement about `files`, ending in a newline."""
    tests: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for clause in report.clauses:
        kind = "passedTests" if clause.outcome == "pass" else "failedTests" if clause.outcome in _FAILED else "warnedTests"
        tests[kind].append(clause.id)
    whole = report.run.complete and not (report.exceptions and report.exceptions.problems)
    warned = tests["warnedTests"] or report.verdict.status != "hardware"
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}} for name, data in files.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": "FAILED" if tests["failedTests"] or not whole else "WARNED" if warned else "PASSED",
            "configuration": _configuration(report),
            **tests,
        },
    }
    return (json.dumps(statement, indent=1, ensure_ascii=False) + "\n").encode()


def _configuration(report: Report) -> list[dict[str, object]]:
    suite, backend = report.suite, report.backend
    resources = {f"contract {suite.contract_revision}": suite.contract_digest}
    resources |= {f"{package} {suite.version}": digest for package, digest in suite.digests.items()}
    resources[f"configuration of {backend.name}"] = backend.configuration_digest
    if report.exceptions is not None:
        resources["known failures"] = report.exceptions.digest
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in resources.items()]
