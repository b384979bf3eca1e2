"""Members of groups: of the classic protocol, and of KIP-848."""

from __future__ import annotations

import uuid

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker_worlds.history.events import Beat, History, Joined, Place, Synced
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import GROUP, NO_COORDINATOR, QUIET, Trouble
from tests.simulation.clients.reader import Offsets

#: Codes after which the client is no member any longer, and joins again.
OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
STALE = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})


class Replaced(Exception):
    """Another member has the same instance id (FENCED_INSTANCE_ID). A consumer ends then."""


class Member(Offsets):
    """The common part of both kinds: partitions that it owns, and commits for them."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        group: str,
        places: list[Place],
        *,
        instance: str | None = None,
        trouble: Trouble = QUIET,
        pace: float = 1.0,
    ) -> None:
        """`pace` is added to the usual pause between its heartbeats."""
        super().__init__(cluster, history, name, trouble)
        self.pace = pace
        self.group = group
        self.places = places
        self.instance = instance
        self.member = ""
        self.generation = -1
        self.owned: frozenset[Place] = frozenset()
        #: the number of rounds with partitions
        self.rounds = 0

    async def forever(self) -> None:
        """Live until it is replaced or cancelled."""
        try:
            await self.live()
        except Replaced:
            self.note("replaced")
            self.owned = frozenset()

    async def live(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def check_replaced(self, code: int) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Replaced

    async def work(self) -> int:
        """Commit once for a partition that it owns; return the code."""
        self.rounds += 1
        if not self.owned:
            return int(ErrorCode.NONE)
        place = self.random.choice(sorted(self.owned))
        return await self.commit(
            self.group,
            place,
            self.history.now(),
            member=self.member,
            generation=self.generation,
            instance=self.instance,
        )


class ClassicMember(Member):
    """A member that uses JoinGroup, SyncGroup, Heartbeat; the leader assigns the partitions in turn."""

    async def live(self) -> None:
        while True:
            leads = await self._join()
            if leads is None or not await self._sync(leads):
                continue
            while await self._stay():
                await self.pause(0.05, 0.5 * self.pace)

    def subscription(self) -> bytes:
        topics = sorted({topic for topic, _ in self.places})
        return b"\x00\x00" + ConsumerProtocolSubscription(topics=topics).encode_bytes(0)

    async def _join(self) -> list[str] | None:
        """Return the members if this one leads, otherwise an empty list; None means that it must join again."""
        metadata = self.subscription()
        self.owned = frozenset()
        request = JoinGroupRequest(
            group_id=self.group,
            member_id=self.member,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
            session_timeout_ms=6_000,
            rebalance_timeout_ms=2_500,
        )
        started = self.history.now()
        coordinator = await self.coordinator(GROUP, self.group)
        answer = await self.ask_coordinator(GROUP, self.group, request)
        if answer is None:
            return None
        code = answer.error_code
        self.note("joined", code, answer.generation_id)
        if code == ErrorCode.NONE:
            self.member, self.generation = answer.member_id, answer.generation_id
            event = Joined(
                started=started,
                code=code,
                client=self.name,
                group=self.group,
                member=self.member,
                generation=self.generation,
                leader=answer.leader,
                instance=self.instance,
                was_replaced=self.was_replaced(coordinator),
            )
            self.history.record(event)
            return [] if answer.skip_assignment else [member.member_id for member in answer.members]
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = answer.member_id
        else:
            await self._refused(code)
        return None

    async def _refused(self, code: int) -> None:
        self.check_replaced(code)
        if code in NO_COORDINATOR:
            await self.moved(GROUP, self.group)
        elif code in OUT:
            self.member = ""
        else:
            assert code in STALE, ErrorCode(code)
        await self.pause()

    async def _sync(self, members: list[str]) -> bool:
        given: dict[str, list[int]] = {member: [] for member in members}
        for number in range(len(self.places) if members else 0):
            given[members[number % len(members)]].append(number)
        request = SyncGroupRequest(
            group_id=self.group,
            member_id=self.member,
            generation_id=self.generation,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=bytes(numbers))
                for member, numbers in given.items()
            ],
        )
        started = self.history.now()
        answer = await self.ask_coordinator(GROUP, self.group, request)
        if answer is None:
            return False
        self.note("synced", answer.error_code, bytes(answer.assignment))
        if answer.error_code != ErrorCode.NONE:
            await self._refused(answer.error_code)
            return False
        self.owned = frozenset(self.places[number] for number in answer.assignment)
        self.history.record(
            Synced(
                started=started,
                code=answer.error_code,
                client=self.name,
                group=self.group,
                member=self.member,
                generation=self.generation,
                partitions=self.owned,
                instance=self.instance,
            )
        )
        return True

    async def _stay(self) -> bool:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member,
            group_instance_id=self.instance,
        )
        answer = await self.ask_coordinator(GROUP, self.group, request)
        if answer is None:
            return True
        code = answer.error_code
        if code == ErrorCode.NONE and self.random.random() < 0.5:
            code = await self.work()
        if code in NO_COORDINATOR:
            await self.moved(GROUP, self.group)
        elif code in OUT:
            self.member = ""
        if code not in (ErrorCode.NONE, *NO_COORDINATOR):
            self.check_replaced(code)
            assert code in OUT | STALE, ErrorCode(code)
            self.note("leaves its place", code)
            return False
        return True

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member, group_instance_id=self.instance)
        await self.ask_coordinator(GROUP, self.group, LeaveGroupRequest(group_id=self.group, members=[identity]))
        self.member = ""


class SlowStickyMember(ClassicMember):
    """A member whose subscription contains its partitions and generation, as with sticky assignors, so the subscription
    changes with each join. Between its JoinGroup and its SyncGroup the coordinator has time to move."""

    def subscription(self) -> bytes:
        topics = sorted({topic for topic, _ in self.places})
        had = repr((self.generation, sorted(self.owned))).encode()
        return b"\x00\x01" + ConsumerProtocolSubscription(topics=topics, user_data=had).encode_bytes(1)

    async def _sync(self, members: list[str]) -> bool:
        await self.pause(0.0, 2.0)
        return await super()._sync(members)


class ConsumerMember(Member):
    """A member that uses ConsumerGroupHeartbeat: it releases partitions, confirms that, and takes new ones."""

    async def live(self) -> None:
        self._new()
        # A full heartbeat is sent when it joins, and after any heartbeat that may have been lost.
        full = True
        while True:
            full = not await self._beat(full)
            if self.owned and self.random.random() < 0.5:
                code = await self.work()
                if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
                    self.note("cannot commit", code)
                else:
                    self.check_replaced(code)
                    assert code in (ErrorCode.NONE, *STALE), ErrorCode(code)
            await self.pause(0.02, 0.3 * self.pace)

    def _new(self) -> None:
        if not self.member:
            self.member = str(uuid.UUID(bytes=self.random.randbytes(16), version=4))
        self.generation = 0
        self.owned = frozenset()

    async def _beat(self, full: bool) -> bool:
        """Send a heartbeat. Return False if the next one must be full."""
        joins = self.generation == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=self.generation,
            instance_id=self.instance if joins or full else None,
        )
        if joins or full:
            request.rebalance_timeout_ms = 4_000
            request.subscribed_topic_names = sorted({topic for topic, _ in self.places})
            request.server_assignor = "uniform"
        said = self.owned
        # Its partitions must be sent when they changed, and may always be sent.
        request.topic_partitions = [
            RequestTopicPartitions(
                topic_id=await self.topic_id(topic),
                partitions=sorted(index for name, index in said if name == topic),
            )
            for topic in sorted({topic for topic, _ in said})
        ]
        started = self.history.now()
        answer = await self.ask_coordinator(GROUP, self.group, request)
        if answer is None:
            return False
        code = answer.error_code
        # The event ends here: finding the names of unknown topics may take longer than a session lasts.
        beat = self.history.record(
            Beat(
                started=started,
                code=code,
                client=self.name,
                group=self.group,
                member=self.member,
                sent_epoch=request.member_epoch,
                epoch=answer.member_epoch,
                owned=said,
                assigned=None,
            )
        )
        assigned = None
        if code == ErrorCode.NONE and answer.assignment is not None:
            assigned = beat.assigned = frozenset(
                [
                    (await self.name_of(part.topic_id), index)
                    for part in answer.assignment.topic_partitions
                    for index in part.partitions
                ]
            )
        self.note("beat", code, answer.member_epoch, sorted(assigned) if assigned is not None else None)
        if code == ErrorCode.NONE:
            self.generation = answer.member_epoch
            if assigned is not None:
                self.owned = assigned
            return True
        if code in NO_COORDINATOR:
            await self.moved(GROUP, self.group)
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            await self.pause(0.2, 0.5)
        else:
            self.check_replaced(code)
            # A power loss may remove the whole group.
            assert code in OUT or code == ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode(code)
            self._new()
        return False

    async def leave(self) -> None:
        epoch = -1 if self.instance is None else -2
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member, member_epoch=epoch)
        started = self.history.now()
        answer = await self.ask_coordinator(GROUP, self.group, request)
        self.history.record(
            Beat(
                started=started,
                code=None if answer is None else answer.error_code,
                client=self.name,
                group=self.group,
                member=self.member,
                sent_epoch=epoch,
                epoch=epoch,
                owned=frozenset(),
                assigned=None,
            )
        )
        self.owned = frozenset()
        self.generation = 0
