"""Adapts a plugin authorizer to the form that the handlers call. If it raises or does not return True, it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.plugins import AuthorizerPlugin, RequestOfClient
from pykbroker.security.acl import java_address
from pykbroker.security.authorizer import Asker, Operation, Resource
from pykbroker_wire.apis import APIS

logger = logging.getLogger(__name__)


class PluginAuthorizer:
    keeps_acls = False

    def __init__(self, plugin: AuthorizerPlugin) -> None:
        self._plugin = plugin

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        request = _request(asker)
        return _only_true(lambda: self._plugin.authorize(request, operation.name, resource.name, name), asker)

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        return self.authorize(asker, operation, resource, name)

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        request = _request(asker)
        return _only_true(lambda: self._plugin.authorize_some(request, operation.name, resource.name), asker)


def _request(asker: Asker) -> RequestOfClient:
    api = APIS.get(asker.api_key)
    name = str(asker.api_key) if api is None else api.name
    return RequestOfClient(asker.principal, java_address(asker.client_host), name)


def _only_true(ask: Callable[[], bool], asker: Asker) -> bool:
    try:
        return ask() is True
    except Exception as error:  # noqa: BLE001 - whatever it raises, the answer is no
        logger.error("Authorizer raised %s for %a, which is refused", type(error).__name__, asker.principal)
        return False
