"""GET /metrics: the node's metrics for Prometheus, at `pykbroker.metrics.listener`.

It asks for no credentials, and its metrics contain names of topics. So it should listen on an address that only the
Prometheus server can reach.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pykbroker.config.kinds import is_loopback, parse_host_port
from pykbroker.config.listeners import host_and_port, local_host
from pykbroker.metrics.exposition import CONTENT_TYPE, lines
from pykbroker.metrics.registry import Sample
from pykbroker.net.http_server import HttpHandler, HttpRequest, HttpResponse, HttpServer
from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: Returns the present metrics, sorted by name.
TakeSamples = Callable[[], Awaitable[list[Sample]]]


@dataclass(frozen=True, slots=True)
class MetricsListener:
    """An open listener. `url`: where programs on this machine read the metrics."""

    url: str
    close: Callable[[], None]


async def open_metrics_listener(
    runtime: Runtime, address: str, samples: TakeSamples, *, is_secured: bool
) -> MetricsListener:
    """Open the listener. `is_secured`: the node has security protocols or an authorizer, so a warning is due if other
    machines can read the metrics. Raises OSError, which names the address."""
    host, port = parse_host_port(address) or ("", 0)
    server = HttpServer(runtime, host, port, metrics_handler(samples))
    try:
        await server.open()
    except OSError as error:
        raise OSError(f"pykbroker.metrics.listener={address}: {error.strerror}") from error
    logger.info("Metrics for Prometheus are at http://%s/metrics", host_and_port(host, server.port))
    if is_secured and not is_loopback(host):
        logger.warning(
            "pykbroker.metrics.listener=%s asks for no credentials: every machine that reaches it reads the names of "
            "topics and groups there",
            address,
        )
    return MetricsListener(f"http://{host_and_port(local_host(host), server.port)}/metrics", server.close)


def metrics_handler(samples: TakeSamples) -> HttpHandler:
    """Return the handler that answers each request."""

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.target.partition("?")[0] != "/metrics":
            return HttpResponse(404, ["The metrics are at /metrics.\n"])
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, ["Only GET is answered.\n"], headers=[("allow", "GET, HEAD")])
        return HttpResponse(200, lines(await samples()), CONTENT_TYPE)

    return handle
