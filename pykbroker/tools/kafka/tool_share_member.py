"""The member of a share group that the tools of share consumers read with, from a Java client's properties.

Responsible for the properties, and for the end of the member and of its connections. Not responsible for the options of
a tool, nor for its output. The member is that of `pykbroker consume --share`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykbroker.tools.cluster.share_group_reader import OnAcknowledged, ShareGroupReader, WantedShare

_ACTS: Final = frozenset({"group.id", "client.id", "request.timeout.ms", "max.poll.records", "fetch.max.bytes"})
#: how long the member tries to reach a broker before the tool can look at the time
_QUESTION_MS: Final = 500
#: The tools choose the acknowledgements themselves, and every batch is checked.
_SET_BY_TOOLS: Final = frozenset({"share.acknowledgement.mode", "check.crcs", "receive.buffer.bytes"})


@contextmanager
def share_member(
    properties: Mapping[str, str], bootstrap: str, wanted: WantedShare, on_acknowledged: OnAcknowledged
) -> Iterator[ShareGroupReader]:
    """Yield a member for the block. At the end it acknowledges its last batch, and releases all other records. After an
    error it acknowledges nothing more, and after a KeyboardInterrupt it does not even leave the group. A property that
    has no effect is named on standard error. Raises ConfigError, NotServed and OSError, and ValueError for an empty
    group or topic.

    `properties`: of a Java consumer; `bootstrap`: HOST:PORT,... of the brokers; `wanted`: the group, the topics and the
    limit. The member yields empty batches while nothing comes, also while no broker answers.
    """
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.client_properties import WITHOUT_EFFECT, number_of, settings_of
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader

    if not wanted.group.strip():
        raise ValueError("The group must not be empty.")
    if not all(topic.strip() for topic in wanted.topics):
        raise ValueError("The topic must not be empty.")
    for key in properties:
        is_known = key in _ACTS or key in _SET_BY_TOOLS or key in WITHOUT_EFFECT
        if not is_known and not key.startswith(("ssl.", "sasl.", "security.")):
            print(f"WARN {key} is no setting of the Python share consumer and has no effect", file=sys.stderr)
    wanted = replace(
        wanted,
        follows=True,
        shows_pauses=True,
        records_at_once=number_of(properties, "max.poll.records", wanted.records_at_once, least=1),
        bytes_at_once=number_of(properties, "fetch.max.bytes", wanted.bytes_at_once),
    )
    # The tool looks at its own time limit and at signals whenever a question to the cluster ends, and the member asks
    # again.
    settings = replace(settings_of(properties, bootstrap), timeout_ms=_QUESTION_MS)
    with AskedCluster(settings) as cluster:
        reader = ShareGroupReader(cluster, wanted, on_acknowledged)
        try:
            yield reader
        except KeyboardInterrupt:
            # The user does not want to wait for brokers. They release the records when the connections end.
            raise
        except BaseException:
            reader.close(printed_all=False)
            raise
        else:
            reader.close()
