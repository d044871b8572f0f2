"""`/openapi.json`: what is served, in OpenAPI 3.1.

Fields that are only passed on are not listed one by one: bodies are open, and a provider's own documents say the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachestack import __version__

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_FLAG: Schema = {"type": ["boolean", "null"]}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31}
_CONTENT: Schema = {"anyOf": [_TEXT, {"type": "array", "items": {"$ref": "#/components/schemas/Part"}, "minItems": 1}]}
_SAMPLING: Schema = {
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
}
_STREAM: Schema = {"stream": _FLAG, "stream_options": {"type": ["object", "null"]}}
_STOP: Schema = {"anyOf": [_NAME, {"type": "array", "items": _NAME}, {"type": "null"}]}


def openapi_document() -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CacheStack gateway",
            "version": __version__,
            "description": "OpenAI's and Anthropic's interfaces through a cache. See docs/gateway.md.",
        },
        "paths": {
            "/v1/chat/completions": _post("chat", "A chat completion, as OpenAI's", "ChatRequest", streams=True),
            "/v1/completions": _post("complete", "A text completion, as OpenAI's", "CompletionRequest", streams=True),
            "/v1/responses": _post("respond", "A response, as OpenAI's", "ResponseRequest", streams=True),
            "/v1/messages": _post("message", "A message, as Anthropic's", "MessageRequest", streams=True),
            "/v1/embeddings": _post("embed", "Vectors of texts, by the cache's encoder", "EmbeddingRequest"),
            "/v1/classify": _post("classify", "Which label fits each text", "ClassifyRequest", wishes=False),
            "/v1/score": _post("score", "Which label fits one text", "ScoreRequest", wishes=False),
            "/v1/report": _post("reportOwn", "Report a hit of one's own", "OwnReportRequest", wishes=False),
            "/v1/models": _get("models", "The models, chat models first"),
            "/v1/models/{model}": _get("model", "One model", _MODEL_IN_PATH),
            "/healthz": _get("alive", "Whether the process answers"),
            "/readyz": _get("ready", "Whether the models are loaded"),
            "/metrics": _get("metrics", "Figures for Prometheus; for admins", text=True),
            "/admin/stats": _get("stats", "Statistics of all tenants, or of one; for admins", _TENANT_IN_QUERY),
            "/admin/invalidate": _post("invalidate", "Remove entries; for admins", "InvalidateRequest"),
            "/admin/entries/{entry}": _delete("removeEntry", "Remove one entry; for admins", _ENTRY_IN_PATH),
            "/admin/report": _post("report", "Report a wrong hit; for admins", "ReportRequest"),
            "/openapi.json": _get("openapi", "This document"),
            "/": _get("help", "One line of help"),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _schemas() -> Schema:
    chat_message = _object(
        {"role": {"enum": ["system", "developer", "user", "assistant"]}, "content": _CONTENT}, "role", "content"
    )
    message = _object({"role": {"enum": ["user", "assistant"]}, "content": _CONTENT}, "role", "content")
    labels = {
        "model": _TEXT,
        "labels": {"type": "array", "items": _NAME, "minItems": 1, "maxItems": 256, "uniqueItems": True},
        "prompt": _TEXT,
        "template": {"type": "string", "pattern": r"\{text\}"},
        "scores": {"enum": ["sum", "mean", "prior"]},
        "min_probability": _SHARE,
        "min_mass": _SHARE,
    }
    messages = {"type": "array", "minItems": 1}
    return {
        "Part": _object({"type": {"const": "text"}, "text": _TEXT}, "type", "text"),
        "ChatRequest": _object(
            {
                "model": _NAME, "messages": {**messages, "items": chat_message}, **_SAMPLING, **_STREAM, "stop": _STOP,
                "max_tokens": _COUNT, "max_completion_tokens": _COUNT, "seed": {"type": ["integer", "null"]},
            },
            "model", "messages",
        ),
        "CompletionRequest": _object(
            {"model": _NAME, "prompt": _NAME, **_SAMPLING, **_STREAM, "stop": _STOP, "max_tokens": _COUNT},
            "model", "prompt",
        ),
        "ResponseRequest": _object(
            {
                "model": _NAME, **_SAMPLING, **_STREAM, "instructions": {"type": ["string", "null"]},
                "input": {"anyOf": [_NAME, {**messages, "items": chat_message}]}, "max_output_tokens": _COUNT,
            },
            "model", "input",
        ),
        "MessageRequest": _object(
            {
                "model": _NAME, "messages": {**messages, "items": message}, **_SAMPLING, "stream": _FLAG,
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2**31}, "system": _CONTENT,
                "stop_sequences": {"type": "array", "items": _NAME},
            },
            "model", "messages", "max_tokens",
        ),
        "EmbeddingRequest": _object(
            {
                "model": _NAME,
                "input": {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "maxItems": 2048}]},
                "encoding_format": {"enum": ["float", "base64"]},
            },
            "model", "input",
        ),
        "ClassifyRequest": _object(
            {**labels, "texts": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2048}}, "texts", "labels"
        ),
        "ScoreRequest": _object({**labels, "text": _TEXT}, "text", "labels"),
        "InvalidateRequest": {
            "type": "object",
            "properties": {
                "tenant": _TEXT, "user": _TEXT, "tag": _TEXT, "version": _TEXT, "entry": _TEXT,
                "older_than_s": {"type": "number", "minimum": 0, "maximum": 10**9},
            },
            "minProperties": 1, "additionalProperties": False,
        },
        "ReportRequest": {
            "type": "object",
            "properties": {
                "hit_id": _NAME, "tenant": _NAME,
                "verdict": {"enum": ["wrong", "right"]}, "remove": {"type": "boolean"},
            },
            "required": ["hit_id", "tenant"], "additionalProperties": False,
        },
        "OwnReportRequest": {
            "type": "object",
            "properties": {"hit_id": _NAME, "verdict": {"enum": ["wrong", "right"]}},
            "required": ["hit_id"], "additionalProperties": False,
        },
        "Answer": {"type": "object"},
        "Error": {"type": "object", "properties": {"error": {"type": "object"}}, "required": ["error"]},
    }  # fmt: skip


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _post(name: str, summary: str, body: str, *, streams: bool = False, wishes: bool = True) -> Schema:
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    events = {"text/event-stream": {"schema": {"type": "object", "required": ["data"]}}} if streams else {}
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "security": [{}, {"key": []}],
            "parameters": _WISHES if streams and wishes else [],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
            },
            "responses": {"200": {"description": "The answer", "content": {**answer, **events}}, **_errors()},
        }
    }


def _get(name: str, summary: str, *parameters: Schema, text: bool = False) -> Schema:
    return {"get": _without_body(name, summary, parameters, text=text)}


def _delete(name: str, summary: str, *parameters: Schema) -> Schema:
    return {"delete": _without_body(name, summary, parameters)}


def _without_body(name: str, summary: str, parameters: Sequence[Schema], *, text: bool = False) -> Schema:
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    plain = {"text/plain": {"schema": _TEXT}}
    return {
        "operationId": name,
        "summary": summary,
        "security": [{}, {"key": []}],
        "parameters": list(parameters),
        "responses": {"200": {"description": "The answer", "content": plain if text else answer}, **_errors()},
    }


def _errors() -> Schema:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    told = "An error in the provider's shape; X-CacheStack-Trace names it in the log"
    return {
        "4XX": {"description": told, "content": error},
        "5XX": {"description": told, "content": error},
    }


def _header(name: str, description: str, pattern: str) -> Schema:
    return {
        "name": name, "in": "header", "required": False, "description": description,
        "schema": {"type": "string", "pattern": pattern},
    }  # fmt: skip


_MODEL_IN_PATH = {"name": "model", "in": "path", "required": True, "schema": _NAME}
_ENTRY_IN_PATH = {"name": "entry", "in": "path", "required": True, "schema": _NAME}
_TENANT_IN_QUERY = {"name": "tenant", "in": "query", "required": False, "schema": _NAME}
_WISHES = [
    _header("Cache-Control", "no-store, no-cache, only-if-cached, max-age=SECONDS", r"^[a-z-]+(=[0-9]{1,9})?$"),
    _header("X-CacheStack-Tags", "names for invalidation, with commas between", r"^[a-z]{1,20}(,[a-z]{1,20}){0,3}$"),
    _header("X-CacheStack-TTL", "seconds that the answer may be kept", r"^[1-9][0-9]{0,5}$"),
]
