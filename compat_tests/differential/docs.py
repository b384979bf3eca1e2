"""Generates docs/differential.md from masks.py and the scripts: `python -m compat_tests.differential.docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from compat_tests.differential.masks import LIMIT, MASKS, OWN_ANYWHERE, OWN_VALUES, STORED_MASKS, LeftOut
from compat_tests.differential.scripts import ONE_STOPPED, SCRIPTS, THREE_NODES
from compat_tests.three_nodes.printed import DIFFERENCES
from pykbroker import generated_page
from testkit.oracle.kafka import KAFKA, NEWEST

PAGE = Path(__file__).resolve().parents[2] / "docs" / "differential.md"
HEAD = f"""# Compared with Apache Kafka, field by field

Written by `python -m compat_tests.differential.docs`; do not edit.

`compat_tests/differential` sends the same requests to Apache Kafka {NEWEST} and to pykbroker: good and bad ones, in
every version of every API that a broker listener serves. Both nodes are fresh, with the same server.properties and the
same finalised features, which are those of Apache Kafka {KAFKA}. The decoded answers are compared field by field. Error
codes, defaults, and null versus empty are always compared. Some scripts have a pair of nodes of another kind
(`nodes.py`): features at level 0, which the script raises while the nodes run, a delayed first rebalance, other
policies of migration.

`records_*` compare what is written instead of what is answered. They decode the records of `__consumer_offsets` and
`__transaction_state`, and compare each with its version and the header of its batch. They also compare whether encoding
a record again gives the same bytes, and where the markers are.

A connection that breaks, an answer that does not come or cannot be decoded, and a script that cannot go on fail the
test, even where both nodes agree. Where a node must close the connection, the script says so at that step, and both
must.

Not asked at all is what pykbroker answers better on purpose: where Apache Kafka says -1, never answers, or stores what
nobody can read. `tests/badinput` has these, with what Apache Kafka does beside them. There are three
more. With a timeout of 0 in CreateTopics and DeleteTopics Kafka says REQUEST_TIMED_OUT and may do it or not; pykbroker
does it and says so. With negative sizes in Fetch Kafka says -1 or nothing at all; pykbroker takes them for 0.
Two assignors of a consumer group may have the same number of votes. Kafka {NEWEST} may then raise the group epoch at
each heartbeat; pykbroker raises it only when a heartbeat changes which assignor the group has.

Everything else that is not compared is in the three tables here: fields of one API, values of a node's own in all APIs,
and whole entries.
"""

OWN_HEAD = f"""An id becomes a symbol, in the order in which the node shows them: which id it is does not matter, but it
must be the same one in the same places. Further {OWN_ANYWHERE}."""

THREE_HEAD = """
`compat_tests/three_nodes` starts three combined nodes of each, with the same voters, directory ids and features, and
lets the same happen to both. It compares the answers to the scripts below, each asked of the same node of both; what
Apache Kafka's command-line tools print, word by word; and the records of the metadata snapshots, field by field.
""".strip()

TOOLS_HEAD = """
Addresses, ports, folders and ids of a cluster become words that both have. The table lists what else is not
compared in the output of a tool:
""".strip()


def page() -> str:
    lines = [HEAD, f"## Masks ({len(MASKS)}, at most {LIMIT}; {len(STORED_MASKS)} of stored records)", ""]
    lines += ["| API | field | what | reason |", "|---|---|---|---|"]
    lines += [f"| {mask.api} | `{mask.field}` | {mask.what} | {mask.reason} |" for mask in (*MASKS, *STORED_MASKS)]
    lines += ["", "## Values of a node's own", "", OWN_HEAD, ""]
    lines += ["| fields | compared as | but for | reason |", "|---|---|---|---|"]
    for own in OWN_VALUES:
        fields = ", ".join(f"`{field}`" for field in own.fields)
        lines.append(f"| {fields} | {own.becomes.value} | {', '.join(map(repr, own.nothing))} | {own.reason} |")
    lines += ["", "## Entries that are left out", "", "| what | reason |", "|---|---|"]
    lines += [f"| {entry.what} | {entry.reason} |" for entry in LeftOut]
    lines += ["", "## Scripts", ""]
    for name, script in SCRIPTS.items():
        lines.append(f"- `{name}`: {(script.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "`python compat_tests/differential/run.py NAME` runs one and prints where the answers differ.", ""]
    lines += ["## Three nodes", "", THREE_HEAD, ""]
    for script in (*THREE_NODES, *ONE_STOPPED):
        lines.append(f"- `{script.__name__}`: {(script.__doc__ or '').strip().splitlines()[0]}")
    lines += ["", "## Apache Kafka's tools against three nodes", "", TOOLS_HEAD, ""]
    lines += ["| tools | what | reason |", "|---|---|---|"]
    lines += [f"| {', '.join(each.tools) or 'all'} | {each.what} | {each.reason} |" for each in DIFFERENCES]
    lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(generated_page.main(PAGE, page, "compat_tests.differential.docs", sys.argv[1:]))
