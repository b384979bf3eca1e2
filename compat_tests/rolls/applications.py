"""Applications that work during a long roll: share groups, an application of Kafka Streams, and Kafka Connect.

They go through the plain listener. Each has a word in `goes_on` (the next step waits until it works), and judges itself
in `finish`.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from compat_tests.exactly_once.test_streams import WordCount
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster
from compat_tests.mixed_cluster.share_members import ShareMembers
from compat_tests.rolls.connect_load import ConnectLoad
from compat_tests.rolls.load import Access, order_from
from testkit.nodes.nodes import eventually

SHARED = "shared"
#: Records for the share groups in each step.
EACH = 40


class Applications:
    def __init__(self, cluster: Cluster, access: Access, folder: Path) -> None:
        """`access`: to the plain listener."""
        cluster.create(SHARED, order_from(cluster.numbers[-1], cluster.numbers))
        with ExitStack() as stack:
            self._shared = ShareMembers(cluster, SHARED, access.bootstrap)
            stack.enter_context(self._shared.running())
            self._words = stack.enter_context(closing(WordCount(access, folder)))
            self._connect = stack.enter_context(closing(ConnectLoad(cluster, access.bootstrap, folder)))
            self._stack = stack.pop_all()

    def goes_on(self) -> None:
        """Wait until each of them has done something more."""
        self._shared.produce(EACH)
        self._shared.all_came()
        counted = self._words.progress()
        eventually("Streams counts words", lambda: self._words.progress() > counted, seconds=PATIENCE_S)
        self._connect.goes_on()

    def finish(self) -> None:
        self._words.finish()
        assert [slot.ends for slot in self._words.slots] == [[], []], "an instance of Streams has ended"
        self._connect.finish()
        self._stack.close()
        self._shared.judge()

    def close(self) -> None:
        self._stack.close()
