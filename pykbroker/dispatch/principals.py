"""The bytes of a principal in an Envelope: Kafka's default principal serde (KIP-590)."""

from __future__ import annotations

from struct import Struct

from pykbroker.security.peer_session import PeerSession
from pykbroker_wire.messages.default_principal_data import DefaultPrincipalData
from pykbroker_wire.primitives import DecodeError

_INT16 = Struct(">h")


def encode_principal(principal: str) -> bytes:
    """Return the bytes of Kafka's default principal serde: version, then DefaultPrincipalData."""
    kind, _, name = principal.partition(":")
    return _INT16.pack(0) + DefaultPrincipalData(type=kind, name=name, token_authenticated=False).encode_bytes(0)


def decode_principal(data: bytes) -> PeerSession:
    """Return the session of an encoded principal. Raise DecodeError if the bytes are not a principal."""
    if len(data) < 2:
        raise DecodeError("a principal needs a version")
    (version,) = _INT16.unpack_from(data)
    if version != 0:
        raise DecodeError(f"principal of version {version}")
    principal, _ = DefaultPrincipalData.decode(data, 2, version)
    return PeerSession(f"{principal.type}:{principal.name}")
