"""Notices that the process of another node has died, by the state of its sockets."""

from typing import Final

#: Apache Kafka does not have this key. If it is off, only the session of a broker and the timeouts of the quorum
#: decide that a node is gone (docs/decisions/0023-early-fence.md).
EARLY_FENCING: Final = "pykbroker.early.fencing.enable"
