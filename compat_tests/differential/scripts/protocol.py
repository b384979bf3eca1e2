"""Before anything else: ApiVersions, the SASL requests on a listener without SASL, frames that are not requests."""

from __future__ import annotations

import struct
from typing import Any

from compat_tests.differential.session import CLIENT_ID, Session
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.nodes.wire import any_header, framed


def _header(key: int, version: int, *, flexible: bool = False) -> bytes:
    return any_header(key, version, client_id=CLIENT_ID.encode(), flexible=flexible)


def api_versions(s: Session) -> None:
    """ApiVersions in every version, and in versions that do not exist."""
    s.each("plain", lambda v: ApiVersionsRequest())
    s.each(
        "with a name",
        lambda v: ApiVersionsRequest(client_software_name="differential", client_software_version="1.0-x"),
        [3, 4, 5],
    )
    for name in ("a b", "-a", "a-", "ä", "a.b-c1"):
        s.call(f"name {name!r}", ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
        s.call(f"version {name!r}", ApiVersionsRequest(client_software_name="x", client_software_version=name), 4)
    for version in (6, 99, 32767, -1):
        data = framed(_header(ApiKey.API_VERSIONS, version, flexible=version >= 3))
        s.raw(f"version {version}", data, api=ApiKey.API_VERSIONS, version=0)
    s.call("no client id", ApiVersionsRequest(), 0, client_id=None)
    cluster = s.ask(DescribeClusterRequest())
    cluster_id, node_id = cluster.cluster_id, cluster.brokers[0].broker_id
    meant: tuple[tuple[str, dict[str, Any]], ...] = (
        ("this node", {"cluster_id": cluster_id, "node_id": node_id}),
        ("another node", {"cluster_id": cluster_id, "node_id": node_id + 1}),
        ("another cluster", {"cluster_id": "x" * 22, "node_id": node_id}),
        ("an empty cluster", {"cluster_id": "", "node_id": node_id}),
        ("a node of no cluster", {"node_id": node_id}),
        ("a cluster without a node", {"cluster_id": cluster_id}),
        ("node -1", {"cluster_id": cluster_id, "node_id": -1}),
        ("node -2", {"cluster_id": cluster_id, "node_id": -2}),
        ("node -2 of no cluster", {"node_id": -2}),
    )
    for what, fields in meant:
        asked = ApiVersionsRequest(client_software_name="differential", client_software_version="1", **fields)
        s.call(what, asked, 5)
        s.call(f"{what}, version 4", asked, 4)
    both = ApiVersionsRequest(client_software_name="a b", client_software_version="1", cluster_id="x", node_id=node_id)
    s.call("a bad name and another cluster", both, 5)


def sasl_without_sasl(s: Session) -> None:
    """SaslHandshake and SaslAuthenticate on a PLAINTEXT listener."""
    s.each("handshake", lambda v: SaslHandshakeRequest(mechanism="PLAIN"))
    s.each("unknown mechanism", lambda v: SaslHandshakeRequest(mechanism="NONE"))
    s.each("authenticate", lambda v: SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))


def frames(s: Session) -> None:
    """Frames with wrong sizes, keys, versions and lengths; and unusual frames that are valid requests."""
    for size in (-1, 0, 104_857_601, 2**31 - 1):
        s.raw(f"size {size}", struct.pack(">i", size), closes=True)
    s.raw("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", closes=True)
    s.raw("TLS", bytes.fromhex("16030100c8010000c4030301"), closes=True)
    s.raw("one byte", framed(b"\0"), closes=True)
    for key, version in (
        (9999, 0),
        (-1, 0),
        (4, 0),
        (5, 0),
        (6, 0),
        (7, 0),
        (52, 0),
        (58, 0),
        (62, 0),
        (3, 99),
        (3, -1),
        (0, 2),
        (0, 99),
        (1, 3),
    ):
        s.raw(f"key {key} version {version}", framed(_header(key, version, flexible=key > 50)), closes=True)
    s.raw("client id longer than the frame", framed(any_header(3, 1, client_id=b"", client_id_size=32767)), closes=True)
    s.raw(
        "client id of length -2",
        framed(any_header(3, 1, client_id=b"", client_id_size=-2)),
        api=3,
        version=1,
        closes=True,
    )
    metadata = _header(ApiKey.METADATA, 1)
    s.raw("array of 2^31-1", framed(metadata + struct.pack(">i", 2**31 - 1)), api=3, version=1, closes=True)
    s.raw("trailing bytes", framed(metadata + struct.pack(">i", 0) + b"garbage"), api=3, version=1)
    s.raw("truncated string", framed(metadata + struct.pack(">ih", 1, 100) + b"abc"), api=3, version=1, closes=True)
    s.raw("invalid UTF-8", framed(metadata + struct.pack(">ih", 1, 2) + b"\xff\xfe"), api=3, version=1)
    s.raw("null where none is allowed", framed(metadata + struct.pack(">ih", 1, -1)), api=3, version=1, closes=True)
    flexible = _header(ApiKey.METADATA, 9, flexible=True)
    s.raw("compact array of 2^32-2", framed(flexible + b"\xff\xff\xff\xff\x0f"), api=3, version=9, closes=True)
    s.raw("varint of seven bytes", framed(flexible + b"\xff\xff\xff\xff\xff\xff\x01"), api=3, version=9, closes=True)
    s.raw("unknown tag", framed(flexible + b"\x01" + b"\0\0\0" + b"\x01\x05\x02ab"), api=3, version=9)
    s.raw("the same tag twice", framed(flexible + b"\x01" + b"\0\0\0" + b"\x02\0\0\0\0"), api=3, version=9)
    s.raw(
        "tag of 2^31-1 bytes",
        framed(flexible + b"\x01" + b"\0\0\0" + b"\x01\0\xff\xff\xff\xff\x07"),
        api=3,
        version=9,
        closes=True,
    )
    s.call("still served", MetadataRequest(topics=[]), 12)


SCRIPTS = (api_versions, sasl_without_sasl, frames)
