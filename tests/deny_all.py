"""An authorizer that allows nothing, so that a test sees whether a handler asks."""

from __future__ import annotations

from pykbroker.security.authorizer import Asker, Operation, Resource


class DenyAll:
    keeps_acls = True

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return False

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        return self.authorize(asker, operation, resource, name)

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        return False
