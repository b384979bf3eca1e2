"""The protocol that the members of a classic group choose, and the topics to which they subscribe in it; pure.

Not responsible for when a group chooses (classic_group.py).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.java import hash_map_order, java_hash
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription

logger = logging.getLogger(__name__)

#: The protocol type of consumers. Connect and schema registries have their own.
CONSUMER: Final = "consumer"


def selected_protocol(members: Collection[Member]) -> str:
    """Return the protocol with the most votes. There must be a member, and a protocol that all members support.

    Each member votes for the first of its protocols that all members support. If several have the most votes, the first
    in the order of Java's HashMap wins. Any order would do, but all coordinators must agree."""
    candidates = frozenset.intersection(*(member.protocol_names for member in members))
    votes: dict[str, int] = {}
    for member in members:
        vote = next(name for name, _ in member.protocols if name in candidates)
        votes[vote] = votes.get(vote, 0) + 1
    return max(hash_map_order(votes, java_hash), key=votes.__getitem__)


def read_subscriptions(
    group_id: str, protocol_type: str | None, protocol: str | None, members: Collection[Member]
) -> frozenset[str] | None:
    """Return the topics to which the members of a consumer group subscribe, None for another kind of group and for
    subscriptions that cannot be read. `group_id` is for the log line."""
    if protocol_type != CONSUMER:
        return None
    if not members:
        return frozenset()
    if protocol is None:
        return None
    topics: set[str] = set()
    try:
        for member in members:
            # Version 0 is a prefix of all later versions, so the coordinator need not know them.
            subscription, _ = ConsumerProtocolSubscription.decode(member.metadata(protocol), 2, 0)
            topics.update(subscription.topics)
    except DecodeError as error:
        logger.warning("Group %s: subscriptions of protocol %s cannot be read: %s", group_id, protocol, error)
        return None
    return frozenset(topics)
