"""Writes the decisions of an authorizer as JSON, one object per line (`pykbroker.authorizer.audit.file`).

Not responsible for writing the lines to the file (runtime/line_file.py). As in `kafka.authorizer.logger`, two kinds of
decisions are not written. The first only decide what a response shows. The second are refusals after which another
permission may still allow the request. The JSON is ASCII, so that a name from a client can neither begin a line nor
control a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pykbroker.security.acl import java_address
from pykbroker.security.authorizer import Asker, Authorizer, Operation, Resource
from pykbroker_wire.apis import APIS

#: The most characters of a text from a client. A longer text is cut off, and its length is added.
SHOWN_CHARACTERS: Final = 1024

#: (asker, operation, resource, name) -> the rule that decided
Explain = Callable[[Asker, Operation, Resource, str], str]


class AuditedAuthorizer:
    def __init__(
        self,
        authorizer: Authorizer,
        write: Callable[[str], None],
        now_ms: Callable[[], int],
        *,
        with_allowed: bool,
        explain: Explain | None = None,
    ) -> None:
        """`with_allowed`: also write allowed requests, not only refusals."""
        self._authorizer = authorizer
        self._write = write
        self._now_ms = now_ms
        self._with_allowed = with_allowed
        self._explain = explain

    @property
    def keeps_acls(self) -> bool:
        return self._authorizer.keeps_acls

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        allowed = self._authorizer.authorize(asker, operation, resource, name, quiet)
        if self._with_allowed if allowed else not quiet:
            rule = None if self._explain is None else self._explain(asker, operation, resource, name)
            self._tell(asker, operation, resource, name, allowed, rule)
        return allowed

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        return self._authorizer.would_allow(asker, operation, resource, name)

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        allowed = self._authorizer.authorize_some(asker, operation, resource)
        if not allowed or self._with_allowed:
            self._tell(asker, operation, resource, None, allowed, None)
        return allowed

    def _tell(
        self,
        asker: Asker,
        operation: Operation,
        resource: Resource,
        name: str | None,
        allowed: bool,
        rule: str | None,
    ) -> None:
        api = APIS.get(asker.api_key)
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        said: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds"),
            "allowed": allowed,
            "principal": _shown(asker.principal),
            "host": java_address(asker.client_host),
            "client_id": _shown(getattr(asker, "client_id", None)),
            "api": str(asker.api_key) if api is None else api.name,
            "operation": operation.name,
            "resource_type": resource.name,
            "resource_name": _shown(name),
            "rule": _shown(rule),
        }
        self._write(json.dumps(said, separators=(",", ":")))


def _shown(text: str | None) -> str | None:
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"
