"""Requests of the quorum that wait for the replica's answer, each under a token.

Responsible for answering each at most once, and all of them at the end, and for the bytes of log and snapshots in an
answer. Not responsible for any other content of an answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pykbroker_raft.metadata_storage import MetadataStorage
from pykbroker_raft.ready import ReadLog, ReadSnapshot, Reply


class AwaitedAnswers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next_token = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def open(self) -> tuple[int, asyncio.Future[Any]]:
        self._next_token += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[self._next_token] = answer
        return self._next_token, answer

    def take(self, token: int) -> asyncio.Future[Any] | None:
        """Remove and return the future of the token. Return None if it was answered or given up."""
        return self._waiting.pop(token, None)

    def cancel_all(self) -> None:
        for answer in self._take_all():
            answer.cancel()

    def _take_all(self) -> list[asyncio.Future[Any]]:
        waiting = [answer for answer in self._waiting.values() if not answer.done()]
        self._waiting.clear()
        return waiting


def fill(reply: Reply, storage: MetadataStorage, end_offset: int) -> None:
    """Put the bytes of the log, or of a snapshot, that belong to this reply into its response. Raises StorageError."""
    read, response = reply.read, reply.response
    if isinstance(read, ReadLog):
        response.responses[0].partitions[0].records = storage.read(read.offset, read.max_bytes, end_offset)
    elif isinstance(read, ReadSnapshot):
        data = storage.read_snapshot(read.id, read.position, read.max_bytes)
        response.topics[0].partitions[0].unaligned_records = data
