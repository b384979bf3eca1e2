"""ApiVersions: clients that mean another broker are told so (KIP-1242)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.api import api_versions
from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from tests.api.broker_half import Half

ANOTHER = ErrorCode.REBOOTSTRAP_REQUIRED
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def half() -> Half:
    """The cluster is `c`, and the node is 1."""
    half = Half()
    services: Any = half.services
    services.quorum = SimpleNamespace(kraft_version=1)
    services.metadata = SimpleNamespace(image=EMPTY_IMAGE, features_offset=0)
    return half


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "broker", "controller"),
    [
        (None, -1, 0, 0),
        ("c", 1, 0, 0),
        ("c", 2, ANOTHER, 0),
        ("d", 1, ANOTHER, 0),
        ("", 1, ANOTHER, 0),
        ("c", -2, ANOTHER, 0),
        ("c", -1, INVALID, INVALID),
        (None, 1, INVALID, INVALID),
    ],
)
def test_a_client_that_means_another_broker_is_told(
    half: Half, cluster_id: str | None, node_id: int, broker: int, controller: int
) -> None:
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    ctx: Any = half.context(request, 5)
    answer = api_versions.handle(ctx, request)
    assert (answer.error_code, bool(answer.api_keys)) == (broker, broker == 0)
    older: Any = half.context(request, 4)
    plain, _ = ApiVersionsRequest.decode(memoryview(request.encode_bytes(4)), 0, 4)
    assert api_versions.handle(older, plain).error_code == 0
    # A controller compares neither id with its own.
    services = half.services
    ctx.services = SimpleNamespace(
        rows=services.rows, metadata=services.metadata, quorum=services.quorum, cluster_id="c", node_id=1
    )
    assert api_versions.handle(ctx, request).error_code == controller


def test_the_software_is_checked_before_the_broker(half: Half) -> None:
    request = ApiVersionsRequest(client_software_name="a b", client_software_version="1", cluster_id="d", node_id=1)
    ctx: Any = half.context(request, 5)
    assert api_versions.handle(ctx, request).error_code == INVALID
