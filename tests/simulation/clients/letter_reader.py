"""A reader of dead letters (KIP-1191)."""

from __future__ import annotations

from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.history.events import Place
from tests.simulation.clients.reader import Reader

_HEADERS = tuple(f"__dlq.errors.{name}" for name in ("group", "topic", "partition", "offset"))


class LetterReader(Reader):
    """Reads a partition of a dead letter queue."""

    async def letters(self) -> set[tuple[str, Place, int]]:
        """Return the records that have a letter: their group, their partition and their offset."""
        found: set[tuple[str, Place, int]] = set()
        self.position, end = 0, 1
        while self.position < end:
            answer = await self.fetch(0)
            if answer is None:
                await self.pause()
                continue
            end = answer.high_watermark
            for at, header in iter_batches(answer.records or b""):
                for record in iter_records(answer.records, at, header):
                    headers = dict(record.headers)
                    group, topic, partition, offset = ((headers[name] or b"").decode() for name in _HEADERS)
                    found.add((group, (topic, int(partition)), int(offset)))
                self.position = header.next_offset
        return found
