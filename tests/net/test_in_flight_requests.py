"""The requests of a connection without a response: their order, their correlation ids, and when a peer is vanished."""

from __future__ import annotations

import math

import pytest

from pykbroker.net.in_flight_requests import ClientRequest, InFlightRequests
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.primitives import DecodeError, EncodeError


def add(requests: InFlightRequests, now: float = 0.0, timeout: float = 1.0) -> ClientRequest:
    request = ClientRequest(MetadataRequest(topics=[]), timeout, None, 0, None)
    requests.add(request, request.message, 12, now)
    return request


def answer(request: ClientRequest) -> memoryview:
    return memoryview(request.correlation_id.to_bytes(4, "big") + b"body")


def test_a_response_belongs_to_the_oldest_request() -> None:
    requests = InFlightRequests("me")
    assert not requests
    first, second = add(requests), add(requests)
    assert requests.oldest is first
    with pytest.raises(DecodeError, match="it has correlation id 1, expected is 0"):
        requests.take(answer(second))
    assert requests.take(answer(first)) is first
    assert requests.take(answer(second)) is second
    with pytest.raises(DecodeError, match="no request waits for it"):
        requests.take(answer(second))


def test_correlation_ids_stay_positive() -> None:
    requests = InFlightRequests("me")
    requests._correlation_id = 0x7FFFFFFF
    assert [add(requests).correlation_id for _ in range(2)] == [0x7FFFFFFF, 0]


def test_a_request_that_cannot_be_encoded_is_not_in_flight() -> None:
    requests = InFlightRequests("x" * 40_000)
    request = ClientRequest(BrokerHeartbeatRequest(), 1.0, None, 0, None)
    with pytest.raises(EncodeError):
        requests.add(request, request.message, 0, 0.0)
    assert not requests


def test_a_peer_is_vanished_when_it_was_silent_for_the_timeout_of_the_oldest_request() -> None:
    requests = InFlightRequests("me")
    add(requests, now=10.0, timeout=3.0)
    add(requests, now=11.0, timeout=math.inf)
    assert requests.vanished_at(last_received_at=2.0) == 13.0
    assert requests.vanished_at(last_received_at=12.5) == 15.5


def test_the_end_of_the_connection_takes_all_requests_in_order() -> None:
    requests = InFlightRequests("me")
    sent = [add(requests) for _ in range(3)]
    assert requests.clear() == sent
    assert not requests
