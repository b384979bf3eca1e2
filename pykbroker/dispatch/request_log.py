"""A line of JSON for each request that a handler answers, as Apache Kafka's request log has it (KIP-673).

Responsible for the content of a line, and for the secrets that it hides. Not responsible for the decision to write a
line (dispatcher.py and api/envelope.py call `logged_request`). The module is imported for the first line.

A request becomes text before its handler gets it, because handlers may change it. Secrets are hidden: values of
configurations, as in Apache Kafka, and also SASL tokens, delegation tokens, and salts and keys of SCRAM, which Apache
Kafka shows. A line is ASCII, so that a name that a client chose cannot begin a new line or control a terminal.

A request waits in no queue, so requestQueueTimeMs and responseQueueTimeMs are 0. localTimeMs is the time until the
handler has returned, remoteTimeMs the wait after that for the answer, sendTimeMs the time to encode it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from pykbroker.config.describe import may_be_secret
from pykbroker.config.kinds import HIDDEN
from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import ForwardedResponse
from pykbroker.metadata.image import ConfigResource
from pykbroker.security.acl import java_address
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.json_form import Hide, render, to_json
from pykbroker_wire.message_fields import MESSAGE_FIELDS
from pykbroker_wire.primitives import Message, TopLevel

#: Fields that are hidden in addition to values of configurations. Apache Kafka 4.3.1 shows them.
_SECRET: Final = frozenset({"auth_bytes", "hmac", "request_data", "response_data", "salt", "salted_password"})
#: As in Apache Kafka, a line has the size of the records in messages of these APIs, and nothing about records in
#: messages of other APIs.
_WITH_SIZES: Final = (ApiKey.PRODUCE, ApiKey.FETCH)
_CLIENT_METRICS_KEYS: Final = frozenset({"interval.ms", "match", "metrics"})
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e]+")


class LoggedRequest:
    """The line of one request. It is made when the request comes and written when the request is answered."""

    __slots__ = ("_answered_ms", "_began_ms", "_clock", "_ctx", "_handled_ms", "_logger", "_request", "_source")

    def __init__(self, clock: Callable[[], float], logger: logging.Logger) -> None:
        """`clock`: milliseconds, for measuring (Runtime.stopwatch_ms)."""
        self._logger = logger
        self._clock = clock
        self._began_ms = clock()
        self._handled_ms = self._answered_ms = self._began_ms

    def opened(self, ctx: AnyContext, request: TopLevel, envelope: AnyContext | None = None) -> None:
        """Record the request before the handler may change it. `envelope`: the context of the Envelope that contained
        it."""
        self._ctx = ctx
        self._source = envelope
        self._request = _body(ctx, request, _hidden_of(ctx, request))

    def handled(self) -> None:
        """Record that the handler has returned. The answer may come later."""
        self._handled_ms = self._answered_ms = self._clock()

    def answered(self) -> None:
        """Record that there is an answer, which is encoded next."""
        self._answered_ms = self._clock()

    def tell(self, response: Any) -> None:
        """Write the line. `response`: a message, the controller's answer to a forwarded request, or None for no
        answer."""
        ctx = self._ctx
        if type(response) is ForwardedResponse:
            response = decode_response(ctx.api_key, ctx.api_version, response.data)[1]
        if ctx.api_key == ApiKey.ENVELOPE and response is not None and not response.error_code:
            # The request inside the Envelope has its own line.
            return
        self._logger.log(logging.DEBUG, "Completed request:%s", _text(self._line(response)))

    def _line(self, response: TopLevel | None) -> Mapping[str, Any]:
        ctx = self._ctx
        at = ctx if self._source is None else self._source
        ended_ms = self._clock()
        return {
            "isForwarded": self._source is not None,
            "requestHeader": {
                "requestApiKey": int(ctx.api_key),
                "requestApiVersion": ctx.api_version,
                "correlationId": ctx.correlation_id,
                "clientId": ctx.client_id,
                "requestApiKeyName": ApiKey(ctx.api_key).name,
            },
            "request": self._request,
            "response": "" if response is None else _body(ctx, response, _hide),
            "connection": _connection(at),
            "totalTimeMs": _ms(ended_ms - self._began_ms),
            "requestQueueTimeMs": 0.0,
            "localTimeMs": _ms(self._handled_ms - self._began_ms),
            "remoteTimeMs": _ms(self._answered_ms - self._handled_ms),
            "throttleTimeMs": getattr(response, "throttle_time_ms", 0),
            "responseQueueTimeMs": 0.0,
            "sendTimeMs": _ms(ended_ms - self._answered_ms),
            "securityProtocol": at.security_protocol,
            "principal": ctx.principal,
            "listener": at.listener_name,
            "clientInformation": {
                "softwareName": at.peer.client_software_name,
                "softwareVersion": at.peer.client_software_version,
            },
        }


def _connection(ctx: AnyContext) -> str:
    """Return the name that Apache Kafka gives the connection: both addresses, the processor, and its number."""
    peer = ctx.peer
    if peer.connection_number is None:
        return "memory"
    transport = getattr(peer, "transport", None)
    ours = None if transport is None else transport.get_extra_info("sockname")
    local = f"{java_address(str(ours[0]))}:{ours[1]}" if isinstance(ours, tuple) and len(ours) > 1 else ""
    remote = f"{java_address(peer.client_host)}:{getattr(peer, 'client_port', 0)}"
    return f"{local}-{remote}-0-{peer.connection_number}"


def _body(ctx: AnyContext, message: TopLevel, hide: Hide) -> Any:
    return to_json(message, ctx.api_version, fields=MESSAGE_FIELDS, hide=hide, sizes=ctx.api_key in _WITH_SIZES)


# -- what is hidden ---------------------------------------------------------------------------------------------------


def _hide(message: Message, attribute: str) -> str | None:
    return HIDDEN if attribute in _SECRET else None


def _hidden_of(ctx: AnyContext, request: Any) -> Hide:
    if ctx.api_key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        return _hide
    secret = {
        id(config)
        for resource in request.resources
        for config in resource.configs
        if _is_hidden(resource.resource_type, config.name)
    }
    return lambda message, attribute: HIDDEN if attribute == "value" and id(message) in secret else None


def _is_hidden(resource_type: int, name: str) -> bool:
    """Return True for a password and for every unknown key, as in Apache Kafka."""
    match resource_type:
        case ConfigResource.CLIENT_METRICS:
            return name not in _CLIENT_METRICS_KEYS
        case ConfigResource.BROKER_LOGGER:
            return False
        case _:
            return may_be_secret(resource_type, name)


# -- text -------------------------------------------------------------------------------------------------------------


def _ms(milliseconds: float) -> float:
    """Round to microseconds, at least 0."""
    return round(max(milliseconds, 0.0), 3) if isfinite(milliseconds) else 0.0


def _text(line: Mapping[str, Any]) -> str:
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], render(line))
