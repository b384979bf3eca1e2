"""Seeds that once found a fault, with what they found: they run first."""

from __future__ import annotations

#: seed -> what it found
REGRESSIONS: dict[int, str] = {
    12: "a partition is moved away from a node and back; a replica that ends a move leads in the same change",
    15: "the same, with its leader moved away",
    26: "a leader commits and resigns in one event: its followers know of more than a leader was seen to commit",
    29: "a partition is moved away from a node and back",
    49: "a leader that follows takes over a lower high watermark, and answers consumers",
    110: "a transaction's offset whose marker is on its way when an offset that need not be stable is fetched",
    133: "the node that stays dead was being started again when all faults ended",
}
