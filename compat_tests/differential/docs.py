"""docs/differential.md from masks.py and the scripts: `python compat_tests/differential/docs.py`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "wire"), str(ROOT / "log"), str(ROOT / "raft")]

from compat_tests.differential.masks import LIMIT, MASKS  # noqa: E402
from compat_tests.differential.scripts import SCRIPTS  # noqa: E402
from compat_tests.oracle.kafka import KAFKA  # noqa: E402

PAGE = ROOT / "docs" / "differential.md"
HEAD = f"""# Compared with Apache Kafka, field by field

Written by `python compat_tests/differential/docs.py`; do not edit.

`compat_tests/differential` sends the same requests, good and bad ones and every version of every API that a broker
listener serves, to Apache Kafka {KAFKA} and to pykbroker, both fresh, with the same server.properties and the same
finalised features. The decoded answers are compared field by field. Error codes, defaults, and null versus empty are
always compared. Some scripts have a pair of nodes of another kind (`nodes.py`): features at level 0, which the script
raises while the nodes run, a delayed first rebalance, other policies of migration.

`records_*` compare what is written instead of what is answered: the records of `__consumer_offsets` and
`__transaction_state`, decoded, each with its version and with whether encoding it again gives the same bytes; of
transactional ones the producer, and where the markers are. Not compared is how records are put into batches, and the
order of sets and of records of different members beside each other.

A node's own values (ids, hashes over them, ports, directories, the time) become symbols in the order in which the node
shows them: which id it is does not matter, but it must be the same one in the same places. Of an error message and of a
key's documentation it is compared whether it is null, empty or text. APIs that pykbroker does not advertise are left
out of the list in ApiVersions. Of a list of all topics, groups or resources a script compares its own.

Not asked at all is what pykbroker answers better on purpose: where Apache Kafka says -1, never answers, or stores what
nobody can read. `tests/badinput` has these, with what Apache Kafka does beside them. Two more: a timeout of 0 in
CreateTopics and DeleteTopics (Kafka says REQUEST_TIMED_OUT and may do it or not; pykbroker does it and says so), and
negative sizes in Fetch (Kafka says -1 or nothing at all; pykbroker takes them for 0).

Everything else that is not compared is here:
"""


def page() -> str:
    lines = [
        HEAD,
        f"## Masks ({len(MASKS)}, at most {LIMIT})",
        "",
        "| API | field | what | reason |",
        "|---|---|---|---|",
    ]
    for mask in MASKS:
        lines.append(f"| {mask.api} | `{mask.field}` | {mask.what} | {mask.reason} |")
    lines += ["", "## Scripts", ""]
    for name, script in SCRIPTS.items():
        lines.append(f"- `{name}`: {(script.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "`python compat_tests/differential/run.py NAME` runs one and prints where the answers differ.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
