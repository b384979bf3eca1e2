"""The result of a load: rates, percentiles, and notes about their limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from pykbroker.tools.bench.load_plan import LoadTold

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
#: If clients are busy for this share of the time, they may limit the rate.
_BUSY: Final = 0.8
_MEGABYTE: Final = 1_000_000


@dataclass(slots=True, frozen=True)
class LoadResult:
    records: int
    failed: int
    failure: str
    seconds: float
    records_per_second: float
    #: megabytes of 1,000,000 bytes: keys and values, before compression
    megabytes_per_second: float
    #: percentile -> milliseconds; empty if no record was timed
    latency_ms: dict[float, float]
    mean_ms: float | None
    greatest_ms: float | None
    #: processor time of all clients over the time they ran; 1.0 if each had a core all the time
    clients_busy: float
    notes: tuple[str, ...]


def percentile(ordered: Sequence[float], of: float) -> float:
    """Return the smallest value that is not exceeded by this percentage of all values."""
    assert ordered, "of nothing there is no percentile"
    return ordered[max(0, ceil(len(ordered) * of / 100 - 1e-9) - 1)]


def summed(told: Sequence[LoadTold], work: str, wanted: int, rate: float = 0) -> LoadResult:
    """Return the result of processes that ran in parallel. `wanted`: the number of records; `rate`: the requested rate,
    or 0 without one."""
    ran = [one for one in told if one.ended_ns > one.begun_ns]
    seconds = (max(one.ended_ns for one in ran) - min(one.begun_ns for one in ran)) / 1e9 if ran else 0.0
    records, failed = sum(one.records for one in told), sum(one.failed for one in told)
    latencies = sorted(latency for one in told for latency in one.latencies_ms)
    alive = sum(one.ended_ns - one.begun_ns for one in ran) / 1e9
    busy = sum(one.cpu_seconds for one in ran) / alive if alive else 0.0
    per_second = records / seconds if seconds else 0.0
    return LoadResult(
        records=records,
        failed=failed,
        failure=next((one.failure for one in told if one.failure), ""),
        seconds=seconds,
        records_per_second=per_second,
        megabytes_per_second=sum(one.bytes for one in told) / seconds / _MEGABYTE if seconds else 0.0,
        latency_ms={of: percentile(latencies, of) for of in PERCENTILES} if latencies else {},
        mean_ms=sum(latencies) / len(latencies) if latencies else None,
        greatest_ms=latencies[-1] if latencies else None,
        clients_busy=busy,
        notes=_notes(work, busy, records, wanted, per_second, rate, len(latencies)),
    )


def busy_note(busy: float) -> str:
    """Return a note about clients that used the processor for this share of the time, or ""."""
    if busy < _BUSY:
        return ""
    return f"the clients (kafka-python) were busy for {busy:.0%} of the time: they, not the cluster, may set the rate"


_MEASURED: Final = {
    "produce": "latency: from send() to the acknowledgement, the wait in the client's own batches included",
    "paced": "latency: from the moment a record was due to its acknowledgement, so a late client counts",
    "end-to-end": "latency: from the moment a record was due to its arrival in a consumer on this machine",
    "consume": "time: from the first poll to the last record; connecting is not in it",
}


def _notes(
    work: str, busy: float, records: int, wanted: int, per_second: float, rate: float, timed: int
) -> tuple[str, ...]:
    notes = [_MEASURED["paced" if work == "produce" and rate else work]]
    if said := busy_note(busy):
        notes.append(said)
    if rate and per_second < 0.95 * rate:
        notes.append(f"the rate of {rate:g} records/s was not reached")
    if records < wanted:
        notes.append(f"{wanted - records} of {wanted} records are missing")
    if 0 < timed < 1000:
        notes.append(f"{timed} records: the 99.9th percentile is the slowest of them")
    return tuple(notes)
