"""Errors by their shape: HTML pages, JSON bodies, HTTP responses, traces and logs, as a server or a program gives them.

An answer that explains one is none, nor is one that was asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from cachestack.semantic.admission.base import Finding

MAX_JSON = 64 * 1024
"""A longer body is no error's."""
MAX_READ = 3_000

_HTML = re.compile(
    r"^\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<(?:\w+:)?(?:fault|exception|errors?|envelope|problem|response|erreur)\b|"
    r"<!doctype\b[^>]{0,200}>|<html\b|<head\b|<center>|<error>|<title>|<body\b|<h1>)",
    re.IGNORECASE,
)
_TRACE = re.compile(
    r"(?:^|\n)\s*(?:traceback \(most recent call last\)|exception in thread |caused by: |goroutine \d+ \[|panic: |"
    r"fatal error: |thread '[^'\n]{0,80}' panicked|"
    r"unhandled (?:exception|rejection|promise)|uncaught (?:exception|\w*error)|segmentation fault|core dumped|"
    r"stack trace:|"
    r"\w{0,60}(?:error|exception): |[\w.$]{1,120}(?:exception|error)(?::|\n)|"
    r"warning: \w+\(\)|(?:php )?(?:fatal|parse|syntax) error\b)",
    re.IGNORECASE,
)
_CRASH = re.compile(
    r"\s*(?:(?:[a-z_]\w{0,40}\.){1,8}\w{0,60}(?:Exception|Error)\b|(?-i:[A-Z][a-z]+(?:[A-Z][A-Za-z]*)?(?:Error|"
    r"Exception)): |error: |rpc error|exit (?:status|code) |curl: |npm err|bash: |command not found|"
    r"traceback \(most recent call last\)|thread '[^'\n]{0,80}' panicked|panic: |segmentation fault|"
    r"exception in thread |fatal error: |uncaught |unhandled |killed$|bus error|aborted \(core|terminate called|"
    r"out of memory)",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^\s*(?:at [\w.$<>\[\] /:-]{1,200}[(:]|file \"[^\"\n]{1,200}\", line \d+|from [^\n:]{1,120}:\d+:in |\d+: +0x|"
    r"#\d+ |\.\.\. \d+ more|[^\s:]{1,120}\.[a-z]{1,5}:\d+(?::\d+)?$)",
    re.IGNORECASE | re.MULTILINE,
)
_LEVEL = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d[^a-z\n]{0,30}\]?\s*)?\[?(?:error|fatal|critical|err|erreur|warn(?:ing)?|severe)\]?\b",
    re.IGNORECASE,
)

_CONSTANT = re.compile(
    r"(?:[A-Z0-9]{1,24}_){0,6}(?:ERR|ERROR|FAIL|FAILED|FAILURE|TIMEOUT|RESET|REFUSED|UNAVAILABLE|EXCEEDED|INVALID|"
    r"DENIED|EXHAUSTED|ABORTED|FOUND|INTERNAL)(?:_[A-Z0-9]{1,24}){0,6}"
)
_EXPLAINS = re.compile(
    r"\b(?:means?|indicates?|usually|typically|often|happens|occurs|appears|because|caused|cause|causes|due to|"
    r"to fix|to resolve|to solve|you can|you need|you should|you have to|make sure|instead|for example|such as|"
    r"when (?:the|a|you|your)|if (?:you|the|your) (?!problem|issue|error|persist)|"
    r"refers|stands for|is (?:an?|the) (?:\w+ ){0,3}(?:status|code|error|response|message|exception)|tells|"
    r"says that|points|try to|first|the (?:cause|reason|fix)|"
    r"signifie\w*|indique\w*|souvent|généralement|se produit|survient|parce que|car|à cause|pour (?:corriger|"
    r"résoudre|régler|éviter)|vous (?:pouvez|devez)|il (?:faut|suffit)|assurez-vous|par exemple|lorsque|quand|"
    r"désigne|correspond|veut dire|vient (?:de|du|souvent)|apparaît|il s'agit)\b"
)


def find_error(asked_for: Collection[str], answer: str) -> tuple[Finding | None, bool]:
    """A finding of kind `error`, and whether it is certain. `asked_for`: what the question asks for (features.py)."""
    head = "\n".join(line for line in map(str.strip, answer[:MAX_READ].splitlines()) if line)
    shape = _document(answer, head)
    if shape is None and _CONSTANT.fullmatch(head.strip()):
        shape = "code"
    if shape is None:
        return None, False
    may_be_asked = "code" in asked_for or "data" in asked_for
    if "error" in asked_for:
        may_be_asked |= shape in ("http", "code", "json") or _EXPLAINS.search(head.lower()) is not None
    return Finding("error", {"shape": shape}), not may_be_asked


def _document(answer: str, head: str) -> str | None:
    if _HTML.match(head):
        return "html"
    if (begin := head.lstrip()[:1]) in ("{", "["):
        return "json" if _is_error_body(answer if len(answer) <= MAX_JSON else "", begin) else None
    if head.lstrip().lower().startswith(("http/1", "http/2")):
        return "http"
    frames = len(_FRAME.findall(head))
    traced = _TRACE.search(head)
    if _CRASH.match(head) and (not _explained(head) or ("\n" not in head.strip() and len(head) <= 300)):
        return "crash"
    num_lines = len([line for line in head.splitlines() if line.strip()])
    is_bare = frames >= 1 and num_lines - frames <= 2 and _CRASH.match(head) is not None
    if traced is not None and frames >= 1 and (is_bare or not _explained(head)):
        return "stack_trace"
    if frames >= 3 and not _explained(head) and frames * 2 >= len([line for line in head.splitlines() if line.strip()]):
        return "stack_trace"
    if _LEVEL.match(head) and not _explained(head) and traced is not None:
        return "log"
    return None


def _explained(text: str) -> bool:
    """Prose beside the trace that says what it means."""
    return _EXPLAINS.search(text.lower().replace("most recent call last", "").replace("caused by", "")) is not None


_ERROR_KEYS = frozenset(
    {
        "error",
        "errors",
        "exception",
        "stacktrace",
        "stack_trace",
        "traceback",
        "error_code",
        "errorcode",
        "error_message",
        "errormessage",
        "erreur",
        "erreurs",
    }
)
_MESSAGE_KEYS = frozenset(
    {
        "message",
        "detail",
        "details",
        "title",
        "status",
        "code",
        "statuscode",
        "status_code",
        "type",
        "reason",
        "msg",
        "success",
        "ok",
        "description",
        "request_id",
        "path",
        "timestamp",
        "trace_id",
    }
)
_FAILING = re.compile(
    r"\b(?:not (?:authenticated|authorized|allowed|found|available)|invalid|missing|denied|forbidden|"
    r"unauthori[sz]ed|failed|error|expired|exceeded|unavailable|erreur|refusé|introuvable)\b"
)
_FAILED = frozenset({"error", "failed", "failure", "fail", "erreur", "échec", "unauthorized", "forbidden", "not_found"})


def _is_error_body(text: str, begin: str) -> bool:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(body, list):
        body = body[0] if len(body) == 1 else None
    if not isinstance(body, dict) or not body:
        return False
    keys = {str(key).lower(): value for key, value in body.items()}
    named = [value for key, value in keys.items() if key in _ERROR_KEYS]
    if any(_says(value) for value in named):
        return len(keys) <= 8
    if any(keys.get(key) == [] for key in ("choices", "content", "output", "candidates", "completions")):
        return True
    if not keys.keys() <= _MESSAGE_KEYS:
        return False
    codes = [value for key, value in keys.items() if key in ("status", "code", "statuscode", "status_code")]
    if codes and isinstance(keys.get("message", keys.get("detail")), str) and len(keys) <= 4:
        return True
    if any(
        isinstance(code, (int, str))
        and not isinstance(code, bool)
        and str(code)[:3].isdigit()
        and 400 <= int(str(code)[:3]) <= 599
        for code in codes
    ):
        return True
    if (
        keys.get("success") is False
        or keys.get("ok") is False
        or any(str(v).lower() in _FAILED for v in keys.values() if isinstance(v, str))
    ):
        return True
    return len(keys) == 1 and any(
        isinstance(keys.get(k), str) and _FAILING.search(str(keys[k]).lower()) is not None
        for k in ("message", "detail", "msg")
    )


def _says(value: object) -> bool:
    return value not in (None, False, "", 0, [], {}, "none", "null")
