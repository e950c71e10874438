"""The published JSON Schema of `report.json`, generated from the model.

For: `accelerator-conformance schema`, `verify`, and the test that keeps `schema/report-1.schema.json` equal. Not for: what a schema cannot
say (`levels.py`, `verify`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from reports.model import FORMAT, Report

SCHEMA_FILE = Path(__file__).parent / "schema" / "report-1.schema.json"


class _Plain(GenerateJsonSchema):
    """Leaves out titles, which only repeat the fields' names, and null, which the documents never hold outside free-form values."""

    schema_dialect = "https://json-schema.org/draft/2020-12/schema"

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def schema_document() -> dict[str, Any]:
    """The schema, JSON Schema 2020-12, without references: following one for each clause would double the time that validation takes."""
    generated = Report.model_json_schema(schema_generator=_Plain)
    body = _inlined({key: value for key, value in generated.items() if key not in ("$defs", "title")}, generated["$defs"])
    return {
        "$schema": _Plain.schema_dialect,
        "$id": f"urn:{FORMAT.replace('/', ':')}",
        "title": f"Report of a conformance run, {FORMAT}",
        **body,
    }


def schema_text() -> str:
    """The schema as published, ending in a newline."""
    return json.dumps(schema_document(), indent=2, ensure_ascii=False) + "\n"


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """The node with each reference replaced by what it names; no definition refers to itself."""
    if isinstance(node, list):
        return [_inlined(inner, definitions) for inner in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = {key: value for key, value in definitions[node["$ref"].rpartition("/")[2]].items() if key != "title"}
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _inlined({**named, **beside}, definitions)
    return {key: _inlined(inner, definitions) for key, inner in node.items()}
