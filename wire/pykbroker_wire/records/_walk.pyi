from array import array

from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.columns import ColumnBuffers
from pykbroker_wire.records.dedupe import NewestRecords, Put
from pykbroker_wire.records.walk import Examined, Walked

def walk(data: Buffer, position: int, expected: int, count: int, most: int = ..., /) -> Walked: ...
def walk_across(state: array[int], data: Buffer, position: int, most: int = ..., /) -> int: ...
def examine(
    data: Buffer,
    position: int,
    count: int,
    base_timestamp: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    keyed: bool,
    timed: bool,
    /,
) -> Examined: ...
def find_timestamp(
    data: Buffer, count: int, base_timestamp: int, target: int, first_delta: int, /
) -> tuple[int, int] | None: ...
def put_keys(
    table: bytearray | memoryview,
    seed: bytes,
    room: int,
    data: Buffer,
    count: int,
    base_offset: int,
    start_offset: int,
    /,
) -> Put: ...
def survivors(
    table: bytearray | memoryview,
    seed: bytes,
    data: Buffer,
    count: int,
    base_offset: int,
    latest_offset: int,
    drop_tombstones: bool,
    /,
) -> NewestRecords: ...
def rebase(data: Buffer, count: int, shift: int, renumber: bool, /) -> bytes: ...
def fill_columns(
    data: Buffer,
    count: int,
    base_offset: int,
    timestamp: int,
    append_time: bool,
    first_offset: int,
    last_offset: int,
    rows: int,
    buffers: ColumnBuffers,
    used: array[int],
    /,
) -> int: ...
