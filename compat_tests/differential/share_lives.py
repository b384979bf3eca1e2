"""Stories of share groups for test_lives.py: what is left of locks and delivery counts after a stop and after a kill.

The member keeps its connection until its node has ended, because the end of a connection releases its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from compat_tests.differential.scripts.asking_shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareReader,
    make_share_group,
    share_summary,
    until_share_coordinator,
    until_share_state,
)
from compat_tests.differential.session import Session

_GROUP = "g"
_LONG_MS = 30_000


class Lived(Protocol):
    """A story of test_lives.py."""

    @property
    def topic(self) -> str: ...
    def make(self) -> None: ...
    def send(self, sequence: int, count: int = 1) -> None: ...
    def another_session(self) -> Session:
        """Return a session that stays open while the node stops. `end_session` ends it."""
        ...

    def end_session(self, session: Session) -> None: ...


def _come_back(story: Lived, before: Session) -> tuple[Session, ShareReader]:
    """Return a session and the member after the node has started again."""
    story.end_session(before)
    s = story.another_session()
    topic_id, group = s.topic_id(story.topic), s.name(_GROUP)
    until_share_coordinator(s, topic_id, group)
    s.call("what is stored", share_summary(topic_id, group))
    return s, ShareReader(s, topic_id, group)


def share_group_over_restarts(story: Lived) -> Iterator[None]:
    """Edge case 40: a kill ends all locks, and forgets the deliveries of records that were not released.

    The session is closed before a stop. Otherwise pykbroker stores these deliveries, and Apache Kafka does not.
    """
    story.make()
    story.send(0, 8)
    s = story.another_session()
    member = make_share_group(s, story.topic, what=_GROUP)()
    member.fetch("acquires", 0, max_wait_ms=_LONG_MS)
    member.acknowledge("one of each", {0: [(0, 2, [ACCEPT, RELEASE, REJECT])]})
    member.acknowledge("closes", {}, share_session_epoch=-1)
    yield
    s, member = _come_back(story, s)
    member.fetch("after a stop", 0, max_wait_ms=_LONG_MS)
    member.acknowledge("one of each again", {0: [(3, 5, [ACCEPT, RELEASE, REJECT])]})
    yield
    s, member = _come_back(story, s)
    member.fetch("after a kill", 0, max_wait_ms=_LONG_MS)
    member.acknowledge("releases some", {0: [(1, 1, [RELEASE]), (4, 4, [RELEASE])]})
    member.fetch("has them again", max_wait_ms=_LONG_MS)
    story.end_session(s)


def latest_group_over_a_kill(story: Lived) -> Iterator[None]:
    """A group that starts at the end of the log, which is the default, gets records, and its node is killed before it
    acknowledges any. Apache Kafka loses them for the group. The last step has what comes afterwards."""
    story.make()
    yield
    s = story.another_session()
    topic_id, group = s.topic_id(story.topic), s.name(_GROUP)
    until_share_state(s, topic_id, group, start=-1)
    member = ShareReader(s, topic_id, group)
    member.fetch("begins at the end", 0)
    story.send(0, 3)
    member.fetch("acquires", max_wait_ms=_LONG_MS)
    yield
    s, member = _come_back(story, s)
    member.fetch("after a kill", 0)
    story.end_session(s)
