"""The audit of authorization decisions, if the properties file has `pykbroker.authorizer.audit.*`, and its metrics.

A node without audit does not import this module. If the audit file cannot be opened, the start fails, so that no node
runs without its audit.
"""

from __future__ import annotations

from pykbroker.config.typed_config import Config
from pykbroker.metrics.registry import Metrics
from pykbroker.node.parts import StartedParts
from pykbroker.runtime import Runtime
from pykbroker.runtime.line_file import LineFile
from pykbroker.security.audited_authorizer import AuditedAuthorizer
from pykbroker.security.authorizer import Authorizer
from pykbroker.security.standard_authorizer import StandardAuthorizer
from pykbroker.storage.format import StorageFormatError


def audited(
    authorizer: Authorizer, path: str, config: Config, runtime: Runtime, metrics: Metrics, parts: StartedParts
) -> AuditedAuthorizer:
    """Return `authorizer` with an audit of its decisions in the file at `path`. Raises StorageFormatError if the file
    cannot be opened."""
    try:
        file = LineFile(path, config.int("pykbroker.authorizer.audit.max.waiting"))
    except OSError as error:
        raise StorageFormatError(
            f"pykbroker.authorizer.audit.file: {path} cannot be opened: {error.strerror}"
        ) from error
    parts.add("authorization audit", file.close)
    metrics.gauge("pykbroker:type=AuthorizerAudit,name=DroppedCount", lambda: file.dropped, counts=True)
    return AuditedAuthorizer(
        authorizer,
        file.write,
        runtime.now_ms,
        with_allowed=config.bool("pykbroker.authorizer.audit.allowed"),
        explain=authorizer.explain if isinstance(authorizer, StandardAuthorizer) else None,
    )
