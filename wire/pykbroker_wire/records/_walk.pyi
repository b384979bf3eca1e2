from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.walk import Walked

def walk(data: Buffer, position: int, expected: int, count: int, /) -> Walked: ...
