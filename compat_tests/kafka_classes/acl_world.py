"""Random ACLs that come and go, and questions between the changes: the steps of one authorizer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from pykbroker.security.acl import Acl, PatternType, Permission
from pykbroker.security.authorizer import Asker, Operation, Resource
from pykbroker.security.peer_session import PeerSession
from pykbroker.security.standard_authorizer import StandardAuthorizer
from pykbroker_wire.primitives import uuid_to_str

RESOURCES = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
OPERATIONS = tuple(each for each in Operation if each > Operation.ALL)
PRINCIPALS = ("User:alice", "User:bob", "User:CN=a,OU=b", "User:*", "Group:alice", "User:super", "User:ANONYMOUS")
#: Apache Kafka's authorizer throws for a client whose principal is `User:*`.
CLIENTS = tuple(each for each in PRINCIPALS if each != "User:*")
#: In the form of clients and of ACLs.
ADDRESSES = ("127.0.0.1", "10.1.2.3", "::1", "2001:db8::5", "::ffff:10.1.2.3")
HOSTS = ("*", "*", "127.0.0.1", "10.1.2.3", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:5", "::1")
NAMES = ("a", "ab", "abc", "abcd", "b", "ba", "orders", "orders-1", "o-2", "*", "*a", "", "ä", "ä€", "kafka-cluster")


@dataclass(slots=True)
class World:
    """`steps` is Apache Kafka's input. `ask` runs the same with our authorizer, step by step."""

    rng: random.Random
    configs: dict[str, str] = field(default_factory=dict)
    steps: list[list[Any]] = field(default_factory=list)
    _acls: dict[bytes, Acl] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.configs["super.users"] = rng.choice(["User:super", "User:super;Group:alice"])
        if rng.random() < 0.7:
            self.configs["allow.everyone.if.no.acl.found"] = rng.choice(["true", "false"])
        self._names = rng.sample(NAMES, rng.randint(2, len(NAMES)))
        for _ in range(rng.choice([0, 2, 10, 40])):
            self._add()
        for _ in range(40):
            kind = rng.random()
            if kind < 0.1:
                self._add()
            elif kind < 0.2 and self._acls:
                self._remove()
            elif kind < 0.3:
                self.steps.append(["some", *self._client(), self._operation(), int(rng.choice(RESOURCES))])
            else:
                name = rng.choice(self._names) + rng.choice(["", "", "x"])
                self.steps.append(["ask", *self._client(), self._operation(), int(rng.choice(RESOURCES)), name or "n"])

    def _client(self) -> tuple[str, str]:
        return self.rng.choice(CLIENTS), self.rng.choice(ADDRESSES)

    def _operation(self) -> int:
        return int(self.rng.choice(OPERATIONS))

    def _add(self) -> None:
        rng = self.rng
        acl = Acl(
            int(rng.choice(RESOURCES)),
            rng.choice(self._names) or "n",
            int(rng.choice((PatternType.LITERAL, PatternType.PREFIXED))),
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            rng.choice([int(Operation.ALL), self._operation(), self._operation()]),
            int(rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))),
        )
        if acl in self._acls.values():
            # A controller gives no second id to an existing rule.
            return
        acl_id = b"A" + rng.randbytes(15)
        self._acls[acl_id] = acl
        self.steps.append(["add", uuid_to_str(acl_id), list(acl)])

    def _remove(self) -> None:
        acl_id = self.rng.choice(list(self._acls))
        del self._acls[acl_id]
        self.steps.append(["remove", uuid_to_str(acl_id)])

    def authorizer(self) -> StandardAuthorizer:
        users = [each for each in self.configs.get("super.users", "").split(";") if each]
        everyone = self.configs.get("allow.everyone.if.no.acl.found") == "true"
        made = StandardAuthorizer(1, users, allow_if_no_acl=everyone)
        made.complete_initial_load()
        return made


def asker(principal: str, address: str) -> Asker:
    peer = SimpleNamespace(session=PeerSession(principal), client_host=address)
    return cast(Asker, SimpleNamespace(peer=peer, principal=principal, client_host=address, api_key=0))
