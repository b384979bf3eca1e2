"""A roll: each node of a cluster becomes the other broker, or a new node of the other broker takes its place.

Controllers go first, and of these the active one last, so that there is one election. Where new controllers take the
place of all old ones, the active one is the last node of all. A node goes when every replica is in sync and every voter
has the whole metadata log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from statistics import median

from compat_tests.exactly_once import reading
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster, Kind, Member
from compat_tests.rolls.applications import Applications
from compat_tests.rolls.configurations import Configuration
from compat_tests.rolls.exchange import exchange
from compat_tests.rolls.load import Load, led_by, order_from
from testkit.nodes.nodes import eventually
from testkit.writers import Asking, lost


def next_node(members: Mapping[int, Member], active: int, to: Kind, *, new_controllers: bool = False) -> int | None:
    """Return the node that goes next, or None if each of them is of this kind. `active`: the active controller.
    `new_controllers`: a broker that has lost the active controller finds the next one by the addresses that it has read
    at its start, so the brokers are exchanged before the active controller."""

    def order(number: int) -> tuple[bool, bool, bool, int]:
        is_active = number == active
        return is_active and new_controllers, not members[number].is_controller, is_active, number

    return min((number for number, member in members.items() if member.kind != to), key=order, default=None)


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest time in which a partition took no record while a node changed hands."""

    seconds: float
    #: the kind of the controller that was active before and after
    controllers: tuple[Kind, Kind]


class Watch:
    """A producer for a partition of each broker, which sends a record every 10 ms and shows the pauses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topics = led_by("watched", cluster.numbers)
        for number, topic in self.topics.items():
            cluster.create(topic, order_from(number, cluster.numbers))
        #: those of the brokers that the producers ask for the leaders
        self.addresses = [cluster.address(number) for number in cluster.numbers]
        self._writers = {topic: Asking(self.addresses, topic, 0) for topic in self.topics.values()}
        for writer in self._writers.values():
            writer.start()

    def goes_on(self) -> None:
        since = time.monotonic()
        eventually(
            "every watched partition takes records",
            lambda: all(writer.acknowledged[0].later_than(since) for writer in self._writers.values()),
            seconds=PATIENCE_S,
        )

    def pauses(self, begin: float) -> list[float]:
        """Return the longest pause of each partition since this time."""
        now = time.monotonic()
        return [writer.acknowledged[0].longest_pause(begin, now) for writer in self._writers.values()]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.stop()

    def judge(self) -> None:
        """Check that each acknowledged record is there, and that none is there twice. Call `close` before."""
        for topic, writer in self._writers.items():
            found = reading.values(self._cluster.bootstrap, topic)[0]
            assert not lost(writer.acknowledged[0].values, found), topic
            assert len(found) == len(set(found)), topic


class Roll:
    """Takes a cluster under load from one broker to the other, and keeps the pauses of partitions."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: Cluster,
        load: Load,
        applications: Applications | None = None,
    ) -> None:
        self.pauses: list[Pause] = []
        self._configuration = configuration
        self._cluster = cluster
        self._load = load
        self._applications = applications
        self._fresh = count(101)
        self._watch = Watch(cluster)

    def go(self, to: Kind, *, troubled: bool = False) -> None:
        """Take every node to this kind, one after the other. `troubled`: the second node is killed with SIGKILL and
        started again, goes a step back, and then forward again."""
        done = 0
        while (number := self._next(to)) is not None:
            before = self._cluster.members[number].kind
            number = self._hand_over(number, to)
            done += 1
            if troubled and done == 2:
                self._cluster.kill(number)
                self._cluster.start(number)
                self._settled(number)
                self._hand_over(self._hand_over(number, before), to)

    def _next(self, to: Kind) -> int | None:
        members, active = self._cluster.members, self._cluster.active()
        return next_node(members, active, to, new_controllers=self._configuration.new_controllers)

    def _hand_over(self, number: int, to: Kind) -> int:
        """Returns the number of the node that is there now."""
        active, begin = self._active_kind(), time.monotonic()
        if self._configuration.exchanges(self._cluster.members[number]):
            number = self._exchange(number, to)
        else:
            self._cluster.hand_over(number, to)
        self._settled(number)
        controllers = (active, self._active_kind())
        self.pauses += [Pause(seconds, controllers) for seconds in self._watch.pauses(begin)]
        return number

    def _exchange(self, old: int, to: Kind) -> int:
        new = next(self._fresh)
        exchange(self._cluster, old, new, to, secured=self._configuration.secured)
        if new in self._cluster.numbers:
            self._load.succeeds(old, new)
            self._watch.topics[new] = self._watch.topics.pop(old)
            self._watch.addresses.append(self._cluster.address(new))
        return new

    def _active_kind(self) -> Kind:
        return self._cluster.members[self._cluster.active()].kind

    def _settled(self, number: int) -> None:
        """Wait until the cluster is whole, and a node that is a broker leads its topics again."""
        self._cluster.in_sync(*self._cluster.all_topics())
        eventually(
            "every voter has the whole metadata log",
            lambda: self._cluster.voters_are_whole(self._cluster.controllers),
            seconds=PATIENCE_S,
        )
        if number in self._cluster.numbers:
            self._load.leads_again(number)
            self._cluster.move(self._watch.topics[number], number)
        self._load.goes_on()
        if self._applications is not None:
            self._applications.goes_on()
        self._watch.goes_on()

    def told(self) -> str:
        """Return a line about the pauses under the controllers of each kind."""
        kinds = sorted({pause.controllers for pause in self.pauses})
        parts = []
        for controllers in kinds:
            found = [pause.seconds for pause in self.pauses if pause.controllers == controllers]
            parts.append(f"{' then '.join(controllers)}: median {median(found):.2f} s, longest {max(found):.2f} s")
        return f"pauses of partitions by the active controller: {'; '.join(parts)}"

    def finish(self) -> None:
        """Stop the producers that show the pauses, and judge what they were told."""
        self._watch.close()
        self._watch.judge()

    def close(self) -> None:
        self._watch.close()
