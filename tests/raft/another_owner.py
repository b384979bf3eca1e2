"""The files that Apache Kafka leaves after it had a metadata log for a while: quorum-state first, then the log, no
note."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker_log.disk import Disk, write_atomic
from pykbroker_log.log_config import AppendOrigin
from pykbroker_log.partition_log import PartitionLog
from pykbroker_raft import election_state, rpc
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.metadata_storage import StorageConfig


def stay_of_another_owner(
    disk: Disk,
    folder: str,
    state: ElectionState,
    *,
    cut_at: int,
    append: Callable[[int], list[bytes]] = lambda end: [],
    now_ms: int,
) -> int:
    """Act as another owner. It starts with `state`, follows a leader whose log diverges at `cut_at`, fetches the
    batches that `append` makes for the log's end, all of the epoch of `state`, and stops. Returns the end offset of its
    log."""
    write_atomic(disk, f"{folder}/{election_state.FILE}", state.to_bytes())
    log = PartitionLog.open(
        disk,
        folder,
        topic=rpc.TOPIC,
        partition=rpc.PARTITION,
        topic_id=rpc.TOPIC_ID,
        config=StorageConfig().log_config(),
        now_ms=now_ms,
    )
    if cut_at < log.log_end_offset:
        log.truncate_to(cut_at)
    for batch in append(log.log_end_offset):
        log.append_as_leader(batch, leader_epoch=state.epoch, now_ms=now_ms, origin=AppendOrigin.RAFT_LEADER)
    log.flush()
    end = log.log_end_offset
    log.close(clean=True)
    return end
