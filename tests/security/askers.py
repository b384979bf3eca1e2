"""A client for the questions to an authorizer, without a request (see Asker in pykbroker/security/authorizer.py)."""

from __future__ import annotations

from dataclasses import dataclass

from pykbroker.dispatch.peers import ForwardedPeer
from pykbroker.security.peer_session import PeerSession
from pykbroker_wire.apis import ApiKey


@dataclass(frozen=True)
class AskingClient:
    principal: str = "User:mallory"
    client_host: str = "10.0.0.1"
    api_key: int = ApiKey.FETCH
    api_version: int = 4
    client_id: str | None = None

    @property
    def peer(self) -> ForwardedPeer:
        return ForwardedPeer(PeerSession(self.principal), self.client_host, "PLAINTEXT", "PLAINTEXT")
