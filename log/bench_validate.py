"""Measure the cost of one batch from the receive buffer to "ready to be written", and the cost to build and read it.

python log/bench_validate.py                       with the compiled walk, if it is there
PYKBROKER_PURE=1 python log/bench_validate.py      with the Python walk
"""

from __future__ import annotations

import os
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "wire"), str(ROOT / "log")]

from pykbroker_log.log_config import LogConfig  # noqa: E402
from pykbroker_log.validate import validate_and_assign  # noqa: E402
from pykbroker_wire.records import walk  # noqa: E402
from pykbroker_wire.records.batch import BatchHeader, build_batch  # noqa: E402
from pykbroker_wire.records.compression import Codec  # noqa: E402
from pykbroker_wire.records.record import iter_records  # noqa: E402

NOW = 1_700_000_000_000


def best_us(call: Callable[[], object], number: int) -> float:
    return min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6


def main() -> None:
    print(f"compiled walk: {walk.COMPILED}; microseconds, best of 7")
    print("codec   bytes  records   validate  /record      build  /record       read  /record")
    for codec in Codec:
        for size in (100, 1000):
            value = os.urandom(size // 2).hex().encode()
            for count in (1, 100, 1000):
                records = [(b"key", value, (), NOW + n) for n in range(count)]
                data = memoryview(bytearray(build_batch(records, codec=codec)))
                header = BatchHeader.parse(data)
                number = max(5, 5000 // count)
                line = f"{codec.name.lower():6} {size:6} {count:8}"
                for call in (
                    lambda data=data: validate_and_assign(data, LogConfig(), offset=0, leader_epoch=1, now_ms=NOW),
                    lambda records=records, codec=codec: build_batch(records, codec=codec),
                    lambda data=data, header=header: [None for _ in iter_records(data, 0, header)],
                ):
                    spent = best_us(call, number)
                    line += f" {spent:10.2f} {spent / count:8.3f}"
                print(line)


if __name__ == "__main__":
    main()
