"""The report document: typed model and published schema say the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from report_factory import make_failing_report, make_report

from conformance.clauses import AREAS, Level, Subject, Tier
from conformance.effort_sizes import EXAMPLES
from conformance.outcomes import Outcome
from reports import levels, model
from reports.model import Report
from reports.schema import SCHEMA_FILE, schema_document, schema_text

VALIDATOR = Draft202012Validator(schema_document())


def test_the_published_schema_is_the_models() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        "run: accelerator-conformance schema > reports/schema/report-1.schema.json"
    )


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema_document())


@pytest.mark.parametrize("make", [make_report, make_failing_report])
def test_reports_follow_the_schema_and_come_back_equal(make: Callable[[], Report]) -> None:
    report = make()
    data = report.to_bytes()
    assert list(VALIDATOR.iter_errors(json.loads(data))) == []
    assert Report.from_bytes(data) == report
    assert Report.from_bytes(data).to_bytes() == data


def test_the_names_are_the_suites() -> None:
    assert get_args(model.OutcomeName) == tuple(outcome.value for outcome in Outcome)
    assert get_args(model.RequirementName) == tuple(level.value for level in Level)
    assert get_args(model.SubjectName) == tuple(subject.value for subject in Subject)
    assert get_args(model.TierName) == tuple(tier.value for tier in Tier)
    assert EXAMPLES["certify"] == levels.EXAMPLES_TO_CERTIFY


def test_every_area_of_the_contract_is_in_one_level() -> None:
    covered = [area for areas in levels.AREAS_OF_LEVEL.values() for area in areas]
    assert sorted(covered) == sorted(AREAS)
    assert (*levels.AREAS_OF_LEVEL, "full") == get_args(model.LevelName)


def _small_document() -> dict[str, Any]:
    """A report with one check of every shape, so that thousands of alterations are tried quickly."""
    document: dict[str, Any] = json.loads(make_failing_report().to_bytes())
    kept = ("DEV-1", "DEV-2", "IPC-1", "RXA-2", "STR-3")
    document["clauses"] = [clause for clause in document["clauses"] if clause["id"] in kept]
    names = {name for clause in document["clauses"] for name in clause["checks"]}
    document["checks"] = sorted(
        (check for check in document["checks"] if check["name"] in names), key=lambda check: -len(str(check))
    )
    for name in ("areas", "capabilities"):
        document[name] = document[name][:2]
    return document


def _objects(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if isinstance(node, dict) else []
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return found + [place for key, value in inner for place in _objects(value, (*path, key))]


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


FREE = {"extra", "configuration", "document", "digests", "libraries", "counts"}


def test_an_unknown_field_is_refused_everywhere_but_under_extra() -> None:
    document = _small_document()
    places = [path for path in _objects(document) if not FREE & set(path)]
    shapes = {tuple(key if isinstance(key, str) else 0 for key in path): path for path in places}
    assert len(shapes) > 20
    for path in shapes.values():
        altered = copy.deepcopy(document)
        _at(altered, path)["surprise"] = 1
        assert not VALIDATOR.is_valid(altered), path
        with pytest.raises(ValidationError):
            Report.from_bytes(json.dumps(altered).encode())
    document["extra"]["surprise"] = {"anything": [None, 1.5]}
    assert VALIDATOR.is_valid(document)
    Report.from_bytes(json.dumps(document).encode())


def test_schema_and_model_refuse_the_same_alterations() -> None:
    document = _small_document()
    tried = 0
    for path in {
        tuple(key if isinstance(key, str) else 0 for key in place) for place in _objects(document) if not FREE & set(place)
    }:
        try:
            keys = list(_at(document, path))
        except (KeyError, IndexError):
            continue
        for key in keys:
            for value in (None, -1, "", "x", 1.5, True, [], {}, "remove"):
                altered = copy.deepcopy(document)
                if value == "remove":
                    del _at(altered, path)[key]
                else:
                    _at(altered, path)[key] = value
                valid = VALIDATOR.is_valid(altered)
                try:
                    Report.from_bytes(json.dumps(altered).encode())
                    read = True
                except ValidationError:
                    read = False
                # Null stands for a field that is left out in the model; the schema, which strangers' files meet first, refuses it.
                assert read == valid or (value is None and not valid), (path, key, value)
                tried += 1
    assert tried > 500
