"""Seeds that once found a fault, with what they found: they run first."""

from __future__ import annotations

#: seed -> what it found
REGRESSIONS: dict[int, str] = {
    12: "a partition is moved away from a node and back; a replica that ends a move leads in the same change",
    15: "the same, with its leader moved away",
    26: "a leader commits and resigns in one event: its followers know of more than a leader was seen to commit",
    29: "a partition is moved away from a node and back",
    49: "a leader that follows takes over a lower high watermark, and answers consumers",
    99: "a follower truncates, and its leader has told it the high watermark with the diverging epoch",
    110: "a transaction's offset whose marker is on its way when an offset that need not be stable is fetched",
    120: "a controller that was paused finds, as it appends, that it leads no longer, and takes what it appended",
    127: "a vote that was not durable yet when its node died, and another one in the same epoch afterwards",
    133: "the node that stays dead was being started again when all faults ended",
    148: "a leader commits, and its ISR shrinks in the same event",
    203: "a follower that lost its records tells a reader that its position is out of range",
    215: "as 120, with partitions that no topic has",
    223: "a broker leads, as the metadata said before its power loss, until the controller hears of its new start",
    282: "the name of a log's first segment is lost, and that of the next one is not",
    318: "a node that dies at a call of its disk acknowledges a request in the rest of that event, to nobody",
    319: "the answers that a failed replica of the quorum owes were logged as failures of handlers",
    332: "as 223, for a partition of __consumer_offsets",
    343: "a fault waits for a call of the disk, and takes records from it when all others have lost theirs",
    349: "as 148",
    445: "a node dies while it cuts off what no leader has committed, and less is there than was durable",
    501: "a clock goes back by an hour, and a consumer group waits that long for its next assignment",
    568: "a leader that is cut off tells a reader without a leader epoch that its position is out of range",
    573: "an EndTxn of transaction.version 1 that arrives late ends the next transaction",
    666: "a coordinator that was fenced while it was alive answers with the offsets that it has",
    679: "as 573",
}
