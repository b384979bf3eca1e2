"""Certificates for tests of TLS: one authority for a run, and whatever it is asked to issue."""

from __future__ import annotations

import datetime
import functools
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.tls.authority import Authority, Issued

NODE_HOSTS = ("localhost", "127.0.0.1")


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def authority(name: str = "Authority of the tests") -> Authority:
    return _authority(name)


@functools.cache
def _authority(name: str) -> Authority:
    from pykbroker.tls.authority import Authority

    return Authority.create(name, now=now(), days=30)


@functools.cache
def node_identity() -> Issued:
    return authority().issue("node", now=now(), days=30, hosts=NODE_HOSTS)


@functools.cache
def client_identity(name: str = "alice", issuer: str = "Authority of the tests") -> Issued:
    return authority(issuer).issue(name, now=now(), days=30)


def node_properties() -> dict[str, str]:
    """The key of a node, as texts of PEM."""
    identity = node_identity()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": in_one_line(identity.key_pem),
        "ssl.keystore.certificate.chain": in_one_line(identity.chain_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": in_one_line(authority().certificate_pem),
    }


def in_one_line(pem: bytes) -> str:
    return pem.decode().replace("\n", " ").strip()


def client_context(folder: Path, identity: Issued | None = None, *, trusts: Authority | None = None) -> ssl.SSLContext:
    """Python's own, which trusts the authority (or another)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(trusts or authority()).certificate_pem.decode())
    if identity is not None:
        file = folder / f"client-{id(identity)}.pem"
        file.write_bytes(identity.key_pem + identity.chain_pem)
        context.load_cert_chain(file)
    return context
