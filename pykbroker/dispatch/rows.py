"""The row of an API, which dispatch reads: where it is served, its versions, its handler, its counters.

A row is resolved with the first request of its API. So a node is ready sooner and takes less memory, since most nodes
never serve most APIs. Not responsible for which APIs there are: pykbroker.api lists them, and passes their rows to the
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

#: the context of the half that `handle` runs on, and the request
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
    """A request that the broker has settled in part. `rest`: the request for the controller, None if nothing is left.
    `whole` makes the whole answer from the controller's answer to the rest."""

    rest: Any | None
    whole: Callable[[Any | None], Any]


@dataclass(slots=True, frozen=True)
class Handlers(Generic[C, Q]):
    """The functions of an API's module for dispatch, its `HANDLERS`. `handle` is called with each request."""

    handle: Callable[[C, Q], object]
    #: Answers a frame without decoding it as a whole: bytes, a response, or one of these later. Returns None, and has
    #: done nothing, if `handle` must answer. For the most frequent shapes of the most frequent APIs.
    handle_frame: Callable[[C, memoryview, int], object] | None = None
    #: `(request, version, code)` -> the broker's answer to a request that it could not forward. A row that forwards
    #: has it.
    refused: Callable[[Q, int, ErrorCode], object] | None = None
    #: Settles a part of a request before the broker forwards the rest. The context is a BrokerContext.
    on_broker: Callable[[Any, Q], Settled | None] | None = None
    #: Called before a broker forwards a request. It raises CloseConnection for a request that the broker refuses.
    check: Callable[[Q], None] | None = None


@dataclass(slots=True, frozen=True)
class ServedApi:
    """One row. `module` is the file in api/ that has the `HANDLERS`.

    forward: a broker listener sends the request on to the active controller in an Envelope (KIP-590), where `handle`
    runs. advertised_min: the lowest version in ApiVersions if that is not the lowest version served.
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
    """A row of TABLE with everything that dispatch needs, resolved once."""

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
        #: by API key, the rows that requests have used
        self.resolved: dict[int, Row] = {}
        #: the answer of ApiVersions, in the order of the keys; never changed
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
