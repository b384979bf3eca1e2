"""Classic groups whose members start together: the number of rebalances."""

from __future__ import annotations

import time
from typing import Any

from compat_tests.differential.scripts.requests import SESSION_MS
from compat_tests.differential.session import NodeError, Session
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker_wire.primitives import TopLevel

JOIN, SYNC, BEAT = 9, 5, 4
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
NOT_YET = (14, 15, 16)  # a partition of the offsets topic is still being loaded
PATIENCE_S = 20.0


class Member:
    """A member of the crowd that behaves like a consumer; each request waits for the answer to the last one."""

    def __init__(self, s: Session, group: str, link: str, instance: str | None) -> None:
        self._s = s
        self._group = group
        self.link = link
        self._instance = instance
        self.id = ""
        self.generation = -1
        self.generations = 0
        self.stable = False
        self._asked: tuple[TopLevel, int] | None = None

    def join(self) -> None:
        self.stable = False
        self._ask(
            JoinGroupRequest(
                group_id=self._group,
                member_id=self.id,
                group_instance_id=self._instance,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
            ),
            JOIN,
        )

    def beat(self) -> None:
        if self._asked is None:
            request = HeartbeatRequest(
                group_id=self._group, generation_id=self.generation, member_id=self.id, group_instance_id=self._instance
            )
            self._ask(request, BEAT)

    def _ask(self, request: TopLevel, version: int) -> None:
        self._asked = (request, version)
        self._s.send(request, version, link=self.link)

    @property
    def beating(self) -> bool:
        return self._asked is not None and isinstance(self._asked[0], HeartbeatRequest)

    def turn(self) -> bool:
        """Take an answer and continue; returns False if there was none."""
        if self._asked is None:
            return False
        request, version = self._asked
        answer = self._s.taken(request, version, self.link)
        if answer is None:
            return False
        self._asked = None
        if isinstance(request, JoinGroupRequest):
            self._joined(answer)
        elif answer.error_code == REBALANCE_IN_PROGRESS:
            self.join()
        elif answer.error_code:
            raise NodeError(f"{self.link}: {type(request).__name__}: error {answer.error_code}")
        else:
            self.stable = True
        return True

    def _joined(self, answer: Any) -> None:
        if answer.error_code in (MEMBER_ID_REQUIRED, *NOT_YET):
            self.id = answer.member_id
            self.join()
            return
        if answer.error_code:
            raise NodeError(f"{self.link}: error {answer.error_code}")
        self.id, self.generation = answer.member_id, answer.generation_id
        self.generations += 1
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"a") for each in answer.members
            ],
        )
        self._ask(request, SYNC)


def _until_stable(members: list[Member]) -> None:
    """Wait until all are in one generation, and the coordinator has confirmed it to each since the last one joined
    it."""
    deadline = time.monotonic() + PATIENCE_S
    confirmed: set[str] = set()
    while len(confirmed) < len(members):
        if time.monotonic() > deadline:
            raise NodeError("the group is not stable")
        generation = max(member.generation for member in members)
        if any(member.generation != generation or not member.stable for member in members):
            confirmed.clear()
        for member in members:
            beating = member.beating
            if member.turn() and beating and member.stable and member.generation == generation:
                confirmed.add(member.link)
            elif member.stable:
                member.beat()
        time.sleep(0.001)


def _crowd(s: Session, size: int, *, static: bool = False, late: int = 0) -> None:
    """Start `size` members at once, and `late` ones a moment after them."""
    what = f"{size} {'static ' if static else ''}members{f' and {late} late ones' if late else ''}"
    group = s.name(what.replace(" ", "-"))
    members = [Member(s, group, f"{what} {number}", f"i{number}" if static else None) for number in range(size + late)]
    for member in members[:size]:
        member.join()
    if late:
        began = time.monotonic()
        while time.monotonic() < began + 0.1:
            for member in members[:size]:
                member.turn()
            time.sleep(0.002)
        for member in members[size:]:
            member.join()
    _until_stable(members)
    s.note(what, {"generation": members[0].generation})
    identities = [MemberIdentity(member_id=member.id) for member in members]
    s.ask(LeaveGroupRequest(group_id=group, members=identities))


def members_at_once(s: Session) -> None:
    """1, 2, 5 and 20 members that start together, and some that come a moment later: in which generation they are
    stable. The delay of the first rebalance is what makes that the same each time."""
    s.until_coordinator()
    for size in (1, 2, 5, 20):
        _crowd(s, size)
        _crowd(s, size, static=True)
    _crowd(s, 2, late=3)
    _crowd(s, 1, late=19)


SCRIPTS = (members_at_once,)
