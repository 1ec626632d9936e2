"""The OpenAPI 3.1 document, made from the table of endpoints and the types they name: nothing in it is written twice."""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .endpoints import Endpoint

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_COMMON_ERRORS = (400, 401, 403, 500, 503)
_BODY_ERRORS = (408, 413)
_DESCRIPTION = """The running delaybridge: what waits, what became of it, and what can still be done about it. Times are epoch milliseconds, UTC.
An id may hold slashes; write them as they are or as `%2F`."""

_TOKENS = "`http.token`, if it is configured; for GET also `http.read_token`, with which anything else is answered 403 (`read_only`)."


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The whole document, ready for JSON."""
    types = [kind for endpoint in endpoints for kind in (endpoint.asks, endpoint.answers) if kind is not None]
    _, schemas = msgspec.json.schema_components([*types, Error], ref_template="#/components/schemas/{name}")
    asked = [(endpoint.method == "GET", endpoint.asks.__name__) for endpoint in endpoints if endpoint.asks]
    queries = {name for query, name in asked if query} - {name for query, name in asked if not query}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(_PARAMETER.sub(r"{\1}", endpoint.path), {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "delaybridge", "version": version, "description": _DESCRIPTION, "license": {"name": "Apache-2.0"}},
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in sorted(schemas.items()) if name not in queries},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": _TOKENS}},
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.path.strip("/") if endpoint.path == "/healthz" else endpoint.handler.__name__,
        "summary": (inspect.getdoc(endpoint.handler) or "").partition("\n")[0],
        "responses": {
            str(endpoint.status): {
                "description": HTTPStatus(endpoint.status).phrase,
                "content": {endpoint.media: _content(endpoint.answers)},
            },
            **{str(status): _failure(endpoint, status) for status in sorted({*_COMMON_ERRORS, *endpoint.errors, *_of_body(endpoint)})},
        },
    }
    parameters = [_path_parameter(*found) for found in _PARAMETER.findall(endpoint.path)]
    if endpoint.asks is not None and endpoint.method == "GET":
        parameters += _query_parameters(schemas[endpoint.asks.__name__])
    elif endpoint.asks is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": _content(endpoint.asks)}}
    return operation | ({"parameters": parameters} if parameters else {})


def _of_body(endpoint: Endpoint) -> tuple[int, ...]:
    """The statuses for a body that comes too slowly, or is too large."""
    return _BODY_ERRORS if endpoint.asks is not None and endpoint.method != "GET" else ()


def _path_parameter(name: str, convertor: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if convertor == "number" else "string"}}


def _query_parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [{"name": name, "in": "query", "required": name in required, "schema": kind} for name, kind in schema["properties"].items()]


def _content(kind: type[msgspec.Struct] | None) -> dict[str, Any]:
    return {} if kind is None else {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}


def _failure(endpoint: Endpoint, status: int) -> dict[str, Any]:
    shape = endpoint.answers if endpoint.probe and status == HTTPStatus.SERVICE_UNAVAILABLE else Error
    return {"description": HTTPStatus(status).phrase, "content": {"application/json": _content(shape)}}
