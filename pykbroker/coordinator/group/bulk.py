"""Loads committed offsets from the log, many at a time. This is the part of loading that runs a million times.

Responsible for the one loop that runs per record when `__consumer_offsets` is loaded. It does the same to a plain
commit as `records.decode` and `GroupShard.replay`, but makes no objects. It looks group and topic up by the key's bytes
without the partition, and the value stays bytes. All other records (groups, tombstones, records that are long or have
headers) go through `iter_encoded` one by one, in the ordinary way.

Not for batches of a transaction, which are undecided, nor for control batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from pykbroker.coordinator.group import records
from pykbroker_wire.records.record import InvalidRecord, iter_encoded, read_varint
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard

#: Records of one step, some ten microseconds of work. With 32, the p99 of Produce during a load was three times as
#: long.
_AT_ONCE: Final = 8
_PARTITION: Final = Struct(">i").unpack_from
#: The length of an offset's key with empty names: type, two lengths, partition.
_LEAST_KEY: Final = 10


class BulkLoad:
    """One bulk load of one shard."""

    __slots__ = ("_known", "_shard")

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        #: a key without its partition -> the offsets of that group and topic
        self._known: dict[bytes, dict[int, bytes]] = {}

    def forget(self) -> None:
        """Forget the offsets of each key. Call it when another record has removed offsets, because the shard may have
        dropped them."""
        self._known.clear()

    def load(self, data: bytes, count: int, base_offset: int, base_timestamp: int) -> Iterator[tuple[int, int]]:
        """Load the records of a batch. Yields, where a pause is possible, how many were read and how many were skipped
        since the last yield."""
        position = done = 0
        while done < count:
            until = min(count, done + _AT_ONCE)
            read, skipped = until - done, 0
            while done < until:
                position, ran = self._plain(data, position, until - done, base_offset)
                done += ran
                if done < until:
                    position, known = self._other(data, position, base_offset, base_timestamp)
                    skipped += not known
                    done += 1
            yield read - skipped, skipped
        if position != len(data):
            raise InvalidRecord(f"{len(data) - position} bytes are left after the last record of the batch")

    def _plain(self, data: bytes, position: int, most: int, base_offset: int) -> tuple[int, int]:
        """Load plain commits from `position` on. Return the position of the first other record, and the number of plain
        commits before it.

        A plain commit has no headers, lengths of at most two bytes, and a key of type 0 or 1. No part of a record is
        stored until its lengths fit together. Numbers are decoded in line, because a call for each number would cost
        more than all other work.
        """
        known = self._known
        start = position
        done = 0
        try:
            while done < most:
                start = position
                byte = data[position]
                if byte > 127:
                    second = data[position + 1]
                    if second > 127:
                        break
                    stop = position + 2 + ((byte & 127 | second << 7) >> 1)
                    position += 3  # the length and the attributes
                else:
                    stop = position + 1 + (byte >> 1)
                    position += 2
                while data[position] > 127:  # the timestamp, which the load does not need
                    position += 1
                position += 1
                delta = data[position]
                position += 1
                if delta > 127:
                    second = data[position]
                    if second > 127:
                        break
                    delta = delta & 127 | second << 7
                    position += 1
                if delta & 1:
                    break
                byte = data[position]
                position += 1
                if byte > 127:
                    second = data[position]
                    if second > 127:
                        break
                    byte = byte & 127 | second << 7
                    position += 1
                key_end = position + (byte >> 1)
                partitions = known.get(data[position : key_end - 4])
                if partitions is None:
                    if byte & 1 or key_end > stop or data[key_end] & 1:  # no key, or no value: a tombstone
                        break
                    partitions = self._look_up(data[position:key_end])
                    if partitions is None:
                        break
                position = key_end
                byte = data[position]
                position += 1
                if byte > 127:
                    second = data[position]
                    if second > 127:
                        break
                    byte = byte & 127 | second << 7
                    position += 1
                value_end = position + (byte >> 1)
                if byte & 1 or data[value_end] or value_end + 1 != stop:
                    break
                partitions[_PARTITION(data, key_end - 4)[0]] = (base_offset + (delta >> 1)).to_bytes(8, "big") + data[
                    position:value_end
                ]
                position = stop
                done += 1
                start = position
        except IndexError:
            # The batch ends early. The ordinary way raises the right error.
            pass
        return start, done

    def _look_up(self, key: bytes) -> dict[int, bytes] | None:
        """Return the offsets of this commit's group and topic, or None if it is not the key of an offset."""
        if len(key) < _LEAST_KEY or key[0] or key[1] > 1:
            return None
        decoded, end = OffsetCommitKey.decode(key, 2, 0)
        if end != len(key):
            return None
        partitions = self._shard.offsets.partitions_of(decoded.group, decoded.topic)
        self._known[key[:-4]] = partitions
        # Once per key is enough, because a deleted group has tombstones, and after those `_known` is empty.
        self._shard.hold_offsets(decoded.group)
        return partitions

    def _other(self, data: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[int, bool]:
        """Load one record in the ordinary way. Return its end, and True if its type is known here."""
        size, start = read_varint(data, position)
        end = start + size
        if size < 0 or end > len(data):
            raise InvalidRecord(f"a record of {size} bytes, {len(data) - start} are left in the batch")
        for found in iter_encoded(data[position:end], 1, base_offset, base_timestamp):
            record = records.decode(found.key, found.value)
            if record is None:
                return end, False
            if record.value is None:
                self.forget()
            self._shard.replay(record, found.offset)
        return end, True
