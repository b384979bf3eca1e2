"""The row of an API: the listeners that serve it, its versions, its handler and its counters. The dispatcher reads it.

A row is resolved at the first request of its API. So a node is ready sooner and takes less memory, because most nodes
never get requests of most APIs. Not responsible for the list of APIs: pykbroker.api has it, and passes the rows to the
dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag
from typing import Any, Generic, TypeVar

from pykbroker.metrics.registry import Counter, Metrics
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersion

#: C is the context of the half on which `handle` runs, Q the request.
C = TypeVar("C")
Q = TypeVar("Q")


EncodedAnswer = list[bytes | bytearray | memoryview]


class On(Flag):
    """The listeners that serve an API."""

    BROKER = 1
    CONTROLLER = 2
    BOTH = 3


@dataclass(slots=True, frozen=True)
class Settled:
    """A request that the broker has settled in part. `rest`: the request for the controller, or None if nothing is
    left. `whole` makes the complete answer from the controller's answer to `rest`, or from None if there was no
    `rest`."""

    rest: Any | None
    whole: Callable[[Any | None], Any]


@dataclass(slots=True, frozen=True)
class Handlers(Generic[C, Q]):
    """The functions that an API's module gives to the dispatcher as its `HANDLERS`. `handle` answers a decoded
    request."""

    handle: Callable[[C, Q], object]
    #: Answers a frame without decoding all of it. Returns bytes, a response, or a future of these. Returns None, after
    #: doing nothing, if `handle` must answer. It is for the most frequent forms of the most frequent requests.
    handle_frame: Callable[[C, memoryview, int], object] | None = None
    #: `(request, version, code)` -> the broker's answer to a request that it could not forward. Only rows with
    #: `forward` have it.
    refused: Callable[[Q, int, ErrorCode], object] | None = None
    #: Settles a part of a request before the broker forwards the rest. The context is a BrokerContext.
    on_broker: Callable[[Any, Q], Settled | None] | None = None
    #: Called before a broker forwards a request. It raises CloseConnection for a request that the broker refuses.
    check: Callable[[Q], None] | None = None


@dataclass(slots=True, frozen=True)
class ServedApi:
    """One row. `module` is the file in api/ that has the `HANDLERS`.

    forward: a broker listener sends the request in an Envelope (KIP-590) to the active controller, which runs `handle`.
    advertised_min: the lowest version in ApiVersions, if that is not the lowest version served.
    """

    key: ApiKey
    on: On
    forward: bool = False
    advertised_min: int | None = None

    @property
    def module(self) -> str:
        return self.key.name.lower()

    @property
    def advertised(self) -> ApiVersion:
        """The entry of this API in ApiVersions."""
        wire = APIS[self.key]
        lowest = wire.min_version if self.advertised_min is None else self.advertised_min
        return ApiVersion(api_key=int(self.key), min_version=lowest, max_version=wire.max_version)

    def counters(self, metrics: Metrics) -> list[Counter]:
        """Return the counters of requests, of their bytes, and of their time in milliseconds."""
        return [
            metrics.counter(f"kafka.network:type=RequestMetrics,name={name},request={APIS[self.key].name}")
            for name in ("RequestsPerSec", "RequestBytes", "TotalTimeMs")
        ]


class Row:
    """A row of TABLE, with everything that the dispatcher needs. It is built once, at the first request of its API."""

    __slots__ = (
        "api",
        "check",
        "decode",
        "handle",
        "handle_frame",
        "key",
        "max_version",
        "min_version",
        "name",
        "on_broker",
        "refused",
        "request_bytes",
        "requests",
        "total_time_ms",
    )

    def __init__(self, api: ServedApi, handlers: Handlers[Any, Any], metrics: Metrics) -> None:
        wire = APIS[api.key]
        self.api = api
        self.key = int(api.key)
        self.name = wire.name
        self.min_version = wire.min_version
        self.max_version = wire.max_version
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = wire.request.decode
        self.handle: Callable[[Any, Any], Any] = handlers.handle
        self.handle_frame: Callable[[Any, memoryview, int], Any] | None = handlers.handle_frame
        self.refused: Callable[[Any, int, ErrorCode], Any] = handlers.refused or _is_not_forwarded
        self.on_broker: Callable[[Any, Any], Settled | None] | None = handlers.on_broker
        self.check: Callable[[Any], None] | None = handlers.check
        self.requests, self.request_bytes, self.total_time_ms = api.counters(metrics)


class ForwardedResponse:
    """The answer of the controller to a forwarded request, header and body as the controller encoded them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def frame(self) -> EncodedAnswer:
        return [len(self.data).to_bytes(4, "big") + self.data]


class Rows:
    """The APIs that one kind of listener serves."""

    def __init__(self, apis: Iterable[ServedApi], resolve: Callable[[ServedApi], Row]) -> None:
        self._apis = {int(api.key): api for api in apis}
        self._resolve = resolve
        #: API key -> the row, for the APIs that have had requests
        self.resolved: dict[int, Row] = {}
        #: the entries for ApiVersions, in the order of the API keys; the list is never changed
        self.advertised = [self._apis[key].advertised for key in sorted(self._apis)]

    def find(self, key: int) -> Row | None:
        """Return the row of an API key, or None if it is not served here."""
        row = self.resolved.get(key)
        if row is None and (api := self._apis.get(key)) is not None:
            row = self.resolved[key] = self._resolve(api)
        return row

    def __getitem__(self, key: int) -> Row:
        if (row := self.find(key)) is None:
            raise KeyError(key)
        return row


def _is_not_forwarded(request: Any, version: int, code: ErrorCode) -> Any:
    raise AssertionError("an API that is not forwarded")
