"""One member of a classic group, with its protocols and its waiting request.

Not responsible for membership, nor for the choice of a protocol (classic_group.py, protocol_selection.py).
"""

from __future__ import annotations

from pykbroker.coordinator.result import Token

#: (name, metadata) in the member's order of preference
Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """One member. `awaiting_join` and `awaiting_sync` name its waiting request, if any."""

    __slots__ = (
        "_protocols",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_names",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        self.awaiting_sync: Token | None = None
        #: the member has not received its member id yet, so it cannot heartbeat
        self.is_new = False

    @property
    def protocols(self) -> Protocols:
        return self._protocols

    @protocols.setter
    def protocols(self, protocols: Protocols) -> None:
        self._protocols = protocols
        #: computed once, because a member may have 100,000 protocols, and each request to join is compared with them
        self.protocol_names = frozenset(name for name, _ in protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def excused_from_heartbeat(self) -> bool:
        """Return True if a request of the member waits here, because the member is then probably alive. A new member is
        not excused, because it has never proved that it is alive."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support the protocol {protocol} of its group")
