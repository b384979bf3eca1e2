"""A pykbroker node whose clients log in: SASL_SSL, SCRAM-SHA-512, ACLs. For `make pipeline` with --secured.

Its users are `pipeline` (the jobs), `shop` (the generator) and `admin`, a super user (topics, ACLs, the results). Their
passwords are new each time. The files that the jobs need to log in are in one folder.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

PIPELINE, SHOP, ADMIN = "pipeline", "shop", "admin"
MECHANISM = "SCRAM-SHA-512"
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class SecuredNode:
    """The settings to reach the node: `admin` and `shop` for librdkafka, `security` for that table of pipeline.toml."""

    bootstrap: str
    admin: Mapping[str, str]
    shop: Mapping[str, str]
    security: Mapping[str, str]

    def allow(self, user: str, operations: Mapping[str, str]) -> None:
        """Add an ACL for each topic and its operation, and wait until they are in force."""
        self._change(user, operations, there=True)

    def forbid(self, user: str, operations: Mapping[str, str]) -> None:
        """Remove such ACLs, and wait until they are gone."""
        self._change(user, operations, there=False)

    def _change(self, user: str, operations: Mapping[str, str], *, there: bool) -> None:
        admin = AdminClient({**self.admin, "log_level": 1})
        rules = [(topic, f"User:{user}", AclOperation[operation]) for topic, operation in operations.items()]
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        topics = ResourceType.TOPIC
        changes: Iterable[Future[Any]]
        if there:
            new = [AclBinding(topics, t, literal, u, "*", o, allow) for t, u, o in rules]
            changes = admin.create_acls(new).values()
        else:
            old = [AclBindingFilter(topics, t, literal, u, "*", o, allow) for t, u, o in rules]
            changes = admin.delete_acls(old).values()
        for changed in changes:
            changed.result(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while any((rule in _rules(admin, user)) != there for rule in operations.items()):
            if time.monotonic() > deadline:
                raise TimeoutError("the ACLs do not hold")
            time.sleep(0.02)


def _rules(admin: AdminClient, user: str) -> set[tuple[str, str]]:
    """Return the topics and operations that ACLs allow a user."""
    anything: Any = None  # the annotations of confluent-kafka do not allow None here
    every = AclBindingFilter(
        ResourceType.TOPIC,
        anything,
        ResourcePatternType.ANY,
        f"User:{user}",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return {(rule.name, rule.operation.name) for rule in admin.describe_acls(every).result(PATIENCE_S)}


@contextmanager
def secured_node(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[SecuredNode]:
    """Start the node, without topics and ACLs, and yield it. `folder` gets the authority's certificate and the
    pipeline's password; `settings` are further keys of the node."""
    from pykbroker.testing import SecureBroker

    passwords = {user: secrets.token_urlsafe(16) for user in (PIPELINE, SHOP, ADMIN)}
    with SecureBroker(passwords, mechanism=MECHANISM, acls=True, config=settings) as broker:
        authority, password = folder / "authority.pem", folder / "pipeline.password"
        shutil.copy(broker.confluent(ADMIN)["ssl.ca.location"], authority)
        password.touch(mode=0o600)
        password.write_text(passwords[PIPELINE])
        yield SecuredNode(
            broker.bootstrap_servers,
            broker.confluent(ADMIN),
            broker.confluent(SHOP),
            {
                "protocol": broker.protocol,
                "mechanism": MECHANISM,
                "user": PIPELINE,
                "password_file": str(password),
                "ca_file": str(authority),
            },
        )
