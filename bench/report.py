"""docs/benchmarks.md and the rows of the README, from stored runs: `python -m bench.report [--check] [FILE]`.

The page has parts, each from one run under bench/results/ that has every row of the part: FILE, or else the newest.
No figure is put together by hand. In the README stand, of one node and of three nodes, the rows that are named here
and the part's worst, with our figure divided by Apache Kafka's. With --check nothing is written and a stale page is
an error, for `make lint`.
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

from bench.sides import KAFKA_AND_PYKBROKER, key_of, sides_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

ONE_NODE, THREE_NODES, OVER_CORES, CONTAINERS = "one node", "three nodes", "over cores", "containers"
SECURED, SEGMENTS, BALANCE, COLD_START, SHARING = "secured", "segments", "balance", "cold start", "share groups"
ROLLS = "rolls"
PARTS = (ONE_NODE, THREE_NODES, COLD_START, ROLLS, OVER_CORES, CONTAINERS, SECURED, SHARING, SEGMENTS, BALANCE)

#: The rows that are always in the README, good or bad. The worst row of each part is added, which makes eight more.
CHOSEN = {
    ONE_NODE: (
        ("start", "ready"),
        ("start", "RssAnon idle"),
        ("Produce 1 x 100 B, 1 connection x 50", "throughput"),
        ("librdkafka producer, 1 KB, none", "throughput"),
    ),
    THREE_NODES: (
        ("three nodes, acks=all, 1 x 100 B, 3 producers, 5 in flight", "throughput"),
        ("three nodes, kill -9 of a broker", "Java producer, led, worst"),
    ),
}
#: Remarks that a reader of a part needs.
REMARKS = {
    ONE_NODE: "",
    THREE_NODES: (
        "\n\nReplication factor 3, min.insync.replicas 2, three combined nodes of each side. All processes share the "
        "cores of one machine: in the rows of acks=all six nodes and a client, in all others the three nodes of one "
        "side and their clients. The pauses of a kill are the median of all kills, and the worst where that is said."
    ),
    COLD_START: (
        "\n\nReplication factor 3, min.insync.replicas 2, three combined nodes of one side, which all start at once. "
        "The time is from the start of the processes to the first record acknowledged with acks=all. The client "
        "asks every 10 ms. Stopped: SIGTERM to all at once, and SIGKILL after ten seconds. Killed: SIGKILL to all."
    ),
    ROLLS: (
        "\n\nThree combined nodes of one cluster, replication factor 3, min.insync.replicas 2 ([migration.md]"
        "(migration.md)). The nodes of Apache Kafka restart one after the other, then pykbroker takes the directory of "
        "each; the nodes of pykbroker restart, then Apache Kafka takes each directory back. The row names the program "
        "that starts. The column is the kind of the node that stopped, and of the controller that was active then. So "
        "Apache Kafka under its own controller, and pykbroker under its own, are rolling restarts of one program; the "
        "other two are the moves. A figure is the longest pause of a partition while a node stops, starts, comes into "
        "sync and leads again. A client that asks every 10 ms shows it, unless another one is named. All nodes and "
        "clients share the cores of one machine, so the start of a JVM is in the figures."
    ),
    OVER_CORES: (
        "\n\nOne Apache Kafka node, which runs on all cores, beside the processes of `pykbroker start --brokers`, each "
        "on one. The brokers of both sides and the client share the cores of the machine."
    ),
    CONTAINERS: (
        "\n\nBoth images stand on the same base of Debian's packages, in the same engine. Apache Kafka's has Debian's "
        "Java, the options that start it soonest, and the heap of its own image."
    ),
    SECURED: (
        "\n\nOne node of each side, from the same properties file, certificate (ECDSA, P-256) and users. Every "
        "connection speaks TLS 1.3 with TLS_AES_256_GCM_SHA384, which is checked. The client decrypts on the same "
        "cores: it takes most of one."
    ),
    SHARING: (
        "\n\nBoth sides read the same properties. Throughput counts from the first record of a group; the time until "
        "then is a row of its own. On three nodes the topic has replication factor 3 and min.insync.replicas 2."
    ),
    SEGMENTS: (
        "\n\nBoth sides are Spark (`local[2]`), which reads the same topic of one pykbroker node (5 GB of values) from "
        "the page cache, into its `noop` sink: through the broker with Spark's Kafka source, or the log segments "
        "with `pyspark_pykbroker` and its compiled record loop ([segments.md](segments.md)). They take turns, after a "
        "first read that is not counted. The columns are pruned by a select on one side, by the schema on the other."
    ),
    BALANCE: (
        "\n\nApache Kafka has nothing of the kind beside which it could stand: a cluster as it was stands beside the "
        "same cluster balanced ([balance.md](balance.md)). A load is a coefficient of variation over the brokers. What "
        "has no other side has a goal."
    ),
}

Row = dict[str, Any]
Run = dict[str, Any]


def part_of(title: str) -> str:
    """Return the part of the page that a measurement belongs to."""
    return next((part for part in PARTS[1:] if title.startswith(f"{part}, ")), ONE_NODE)


def whole_parts(run: Run) -> list[str]:
    """Return the parts of which a run has every row. Runs that were stored before there were clusters have one part."""
    whole = run["whole"]
    return list(whole) if isinstance(whole, list) else [ONE_NODE] * whole


def number(value: float) -> str:
    """Return a figure as text: three significant digits, thousands with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goals_of(row: Row) -> dict[str, bool]:
    """Return the goals of a row, and whether it reached them."""
    goals = {}
    if row["target"]:
        goals[f"at least {row['target']:g}x"] = row["ratio"] >= row["target"]
    if row["at_most"] is not None:
        limit = f"at most {row['at_most']:g} {row['unit']}".rstrip()
        goals[limit] = row[key_of(sides_of(row).ours)] <= row["at_most"]
    return goals


def format_row(row: Row) -> str:
    """Return one row for the terminal, with its goals."""
    title = f"{row['measurement']}: {row['figure']}"
    sides = sides_of(row)
    ours = number(row[key_of(sides.ours)])
    # A side that measured 0 (MB) has no ratio.
    ratio = f"{row['ratio']:.2f}x" if row["ratio"] else ""
    if key_of(sides.other) not in row and "before" in row:
        before = number(row["before"])
        return f"{title:<72} before {before:>10}  now {ours:>10} {row['unit']:<8} {ratio}"
    mark = "".join(f"  {'ok' if met else 'MISSED'} ({goal})" for goal, met in goals_of(row).items())
    other = number(row[key_of(sides.other)]) if key_of(sides.other) in row else ""
    return f"{title:<72} {sides.other} {other:>10}  {sides.ours} {ours:>10} {row['unit']:<8} {ratio}{mark}"


def table(rows: list[Row], *, spread: bool, before: bool = False) -> str:
    """Return the Markdown table. `spread`: with the lowest and highest ratio over the rounds. `before`: with the median
    ratio to the other checkout that was measured. Rows with their own sides have a column of goals."""
    sides = sides_of(rows[0]) if rows else KAFKA_AND_PYKBROKER
    has_goals = sides != KAFKA_AND_PYKBROKER
    head = ["load", "figure", sides.other, sides.ours, f"{sides.ours} is better by"]
    head += ["rounds"] * spread + ["than before by"] * before + ["goal"] * has_goals
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "--:|" * (len(head) - 2)]
    for row in rows:
        cells = [row["measurement"], row["figure"]]
        for key in (key_of(sides.other), key_of(sides.ours)):
            cells.append(f"{number(row[key])} {row['unit']}".rstrip() if key in row else "")
        cells.append(f"{row['ratio']:.2f}x" if row["ratio"] else "")
        if spread:
            ratios = ratios_of(row)
            cells.append(f"{min(ratios):.2f}x to {max(ratios):.2f}x" if len(ratios) > 1 else "one")
        if before:
            ratios = ratios_of(row, "before")
            cells.append(f"{statistics.median(ratios):.2f}x" if ratios else "")
        if has_goals:
            cells.append(", ".join(goal if met else f"{goal}: missed" for goal, met in goals_of(row).items()))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratios_of(row: Row, other: str = "") -> list[float]:
    """Return how many times better our side is than the `other` one, in each interleaved round."""
    sides = sides_of(row)
    theirs, mine = row.get(f"{other or key_of(sides.other)}_all", []), row[f"{key_of(sides.ours)}_all"]
    pairs = [(o, p) for o, p in zip(theirs, mine, strict=False) if o and p]
    return [p / o if row["more_is_better"] else o / p for o, p in pairs]


def conditions(run: Run, rows: list[Row]) -> str:
    """Return when, what and where was measured, and how; and the note of the run."""
    machine = run["machine"]
    text = (
        f"Measured {run['when'].replace('T', ' ')} at commit {run['commit']} on {machine['processor']}, "
        f"{machine['cores']} cores, Python {run['python']}"
    )
    own = {side for row in rows for side in row.get("sides", ())}
    note = f" {run['note']}" if run.get("note") else ""
    if own:
        kafka = f", Apache Kafka {run['kafka']}" if any("Apache Kafka" in side for side in own) else ""
        return f"{text}{kafka}.{note}"
    return (
        f"{text}, Apache Kafka {run['kafka']}; medians of {run['rounds']} interleaved rounds of {run['seconds']:g} s"
        + (f"; before: commit {run['before']}." if run.get("before") else ".")
        + note
    )


def read(path: Path) -> Run:
    run: Run = json.loads(path.read_text(encoding="utf-8"))
    return run


def newest_whole(part: str) -> Path | None:
    """Return the newest stored run that has every measurement of a part."""
    whole = [path for path in sorted(RESULTS.glob("*.json")) if part in whole_parts(read(path))]
    return whole[-1] if whole else None


#: part -> the run that it is made from, and its file's name
Chosen = dict[str, tuple[Run, str]]


def rows_of(run: Run, part: str) -> list[Row]:
    return [row for row in run["results"] if part_of(row["measurement"]) == part]


def page(chosen: Chosen) -> str:
    """Return the whole of docs/benchmarks.md."""
    text = "<!-- Generated by `python -m bench.report`. Do not edit. -->\n\n# Compared with Apache Kafka\n"
    for part in PARTS:
        text += f"\n## {part.capitalize()}\n\n"
        if part not in chosen:
            text += "No whole run is stored yet: `make bench` makes one (CONTRIBUTING.md).\n"
            continue
        run, name = chosen[part]
        rows = rows_of(run, part)
        text += (
            f"Every row of one run of `make bench`, the losses too. {conditions(run, rows)}\n"
            f"Each round of both sides is in `bench/results/{name}`.{REMARKS[part]}\n\n"
            f"{table(rows, spread=True, before=any('before_all' in row for row in rows))}\n"
        )
    return text


def readme_rows(chosen: Chosen) -> str:
    """Return the text between the markers in the README file: one table, and a sentence for each part of it."""
    if not chosen:
        return "No whole run is stored yet."
    lines = [
        "| load | figure | better is | Apache Kafka | pykbroker | pykbroker ÷ Kafka |",
        "|---|---|---|--:|--:|--:|",
    ]
    notes = []
    for part in CHOSEN:
        if part in chosen:
            run, _ = chosen[part]
            lines += [readme_row(row) for row in _readme_rows_of(run, part)]
            notes.append(f"{part.capitalize()}: {_lower_first(conditions(run, rows_of(run, part)))}")
    notes.append("The last row of each part is its worst of all.")
    text = textwrap.fill(" ".join(notes), 120, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n\n" + text


def readme_row(row: Row) -> str:
    """Return one row for the README file with our figure divided by Apache Kafka's. A loss is bold and has that
    word."""
    quotient = row["ratio"] if row["more_is_better"] else 1 / row["ratio"]
    figures = [f"{number(row[side])} {row['unit']}".rstrip() for side in ("kafka", "pykbroker")]
    shown = number(quotient) if row["ratio"] >= 1 else f"**{number(quotient)}, a loss**"
    better = "more" if row["more_is_better"] else "less"
    return "| " + " | ".join([row["measurement"], row["figure"], better, *figures, shown]) + " |"


def _readme_rows_of(run: Run, part: str) -> list[Row]:
    """The chosen rows of a part, and the one with the worst ratio."""
    found = rows_of(run, part)
    rows = {(row["measurement"], row["figure"]): row for row in found}
    named = [rows[key] for key in CHOSEN[part] if key in rows]
    left = [row for row in found if row not in named and row["ratio"]]
    worst = min(left, key=lambda row: float(row["ratio"]), default=None)
    return named + ([worst] if worst else [])


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def with_rows(text: str, rows: str) -> str:
    """Return the README with `rows` between its markers. Raises ValueError if a marker is missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    files = [Path(argument) for argument in arguments if argument != "--check"]
    given = {part: path for path in files for part in whole_parts(read(path))}
    if files and not given:
        print(f"{files[0]} is no whole run of any part", file=sys.stderr)
        return 1
    paths = {part: given.get(part) or newest_whole(part) for part in PARTS}
    chosen = {part: (read(path), path.name) for part, path in paths.items() if path is not None}
    wanted = {
        PAGE: page(chosen),
        README: with_rows(README.read_text(encoding="utf-8"), readme_rows(chosen)),
    }
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in stale:
        if check:
            name = file.relative_to(ROOT)
            print(f"{name} is not what the stored run says: run python -m bench.report", file=sys.stderr)
        else:
            file.write_text(wanted[file], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
