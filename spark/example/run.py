"""`make pipeline`: the whole example on this machine, from its own node to the pictures.

Starts pykbroker, writes a day of a shop to it, runs all jobs at the same time, and prints their results next to the
answer of plain Python for the same records. The lake, the jobs' configuration, checkpoints and log, and the pictures
stay in build/pipeline/ until the next run.

    make pipeline PIPELINE_ARGS="--users 800 --rate 400"
    make pipeline PIPELINE_ARGS="--secured"                             the node asks for logins and has ACLs
    make pipeline PIPELINE_ARGS="--bootstrap-server localhost:9092"     another broker; it must not have the topics yet

It is `python -m example.run` with spark/ on the path.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from example import results, topics, watch
from example.expected import Expected, compute
from example.generator import START_MS, Workload, generate
from example.records import Record, Times
from example.sending import Sender

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from example.secured_node import SecuredNode

SPARK = Path(__file__).resolve().parents[1]
ROOT = SPARK.parent
OUT = ROOT / "build" / "pipeline"
LEAST_JAVA = 17
JOBS = ("dead-letters", "lake", "windows", "sessions", "conversions")
#: Half a minute on this machine is some hours of the example's day, and the partitions are not read in step.
TIMES = Times(slack_s=3600)
START_S, QUIET_S, PATIENCE_S = 240, 5, 600


class ExampleError(Exception):
    """A message for the user, as one paragraph."""


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    try:
        _check_java()
        return _run(options)
    except ExampleError as error:
        print(f"make pipeline: {error}", file=sys.stderr)
        return 1


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The example of the pipeline, on one machine.")
    parser.add_argument("--users", type=int, default=500, help="of the shop (default: %(default)s, 8,000 records)")
    parser.add_argument(
        "--rate", type=float, default=200, help="records a second; 0: all at once (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another day (default: %(default)s)")
    parser.add_argument("--trigger", type=float, default=1, help="seconds between batches (default: %(default)s)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-server", help="a broker that runs already (default: a pykbroker of its own)")
    where.add_argument("--secured", action="store_true", help="a pykbroker with SASL_SSL, SCRAM-SHA-512 and ACLs")
    parser.add_argument("--master", help="Spark's master (default: all cores of this machine)")
    return parser.parse_args(argv)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    how = (
        f"Spark needs a JDK, {LEAST_JAVA} or newer: `apt-get install default-jdk-headless`, `brew install openjdk@17`, "
        "`dnf install java-17-openjdk-headless`; where it is not on the PATH, set JAVA_HOME. pykbroker needs none."
    )
    if java is None or shutil.which(java) is None:
        raise ExampleError(f"there is no java here{' in JAVA_HOME' if home else ''}. {how}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603  # Java and this program
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < LEAST_JAVA:
        raise ExampleError(f"{java} is too old: {said.splitlines()[0] if said else 'it says nothing'}. {how}")


@dataclass(frozen=True)
class Pipeline:
    """The process of the jobs, and the paths of their files."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def checkpoint(self, job: str) -> Path:
        return self.folder / "checkpoints" / job

    def check(self) -> None:
        if self.process.poll() is not None:
            log = (self.folder / "jobs.log").read_text(errors="replace").splitlines()
            raise ExampleError("\n".join(["the jobs have ended; the end of their log:", *log[-25:]]))

    def has_started(self) -> bool:
        return all(self.commits())

    def has_read(self, ends: watch.Ends) -> bool:
        return all(watch.has_read(self.checkpoint(job), ends) for job in JOBS)

    def commits(self) -> list[int]:
        return [len(watch.batches(self.checkpoint(job), "commits")) for job in JOBS]

    def wait_until_quiet(self) -> None:
        """Wait until no job commits a batch, because windows that the closing records have closed come in later
        batches."""
        seen, since = self.commits(), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            time.sleep(0.2)
            self.check()
            if (now := self.commits()) != seen:
                seen, since = now, time.monotonic()


def _run(options: argparse.Namespace) -> int:
    workload = Workload(options.seed, options.users, start_ms=START_MS - 18 * 3_600_000, hours=24, times=TIMES)
    records = generate(workload)
    answer = compute(records, TIMES)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    with _broker(options) as broker:
        print(f"broker          {broker.name}")
        if there := topics.create(broker.admin, workload.partitions):
            raise ExampleError(
                f"{broker.bootstrap} has topics of these names already, delete them first: {', '.join(there)}"
            )
        _configure(OUT / "pipeline.toml", broker)
        broker.allow()
        with _jobs(options) as pipeline:
            sender = Sender(broker.shop, rate=options.rate)
            lake = watch.LakeWatch(pipeline.lake)
            try:
                _feed(pipeline, sender, records)
            finally:
                lake.close()
        found = results.read(_read_lake(pipeline), broker.admin)
    right = _print_summary(found, answer, lake)
    in_lake = {row.place for row in found.rows}
    seen = [one for one in sender.delivered[1:] if (one.topic, one.record.partition, one.offset) in in_lake]
    freshness_s = sorted(lake.freshness_s(pipeline.checkpoint("lake"), seen))
    p50, p95 = (freshness_s[len(freshness_s) * share // 100] for share in (50, 95))
    print(f"freshness       p50 {p50:.1f} s, p95 {p95:.1f} s from Kafka's acknowledgement to visible in the lake")
    _draw(found, freshness_s)
    return 0 if right else 1


def _read_lake(pipeline: Pipeline) -> DataFrame:
    from pipeline import config, lake, session

    configuration = config.load(pipeline.folder / "pipeline.toml")
    with _quiet(pipeline.folder / "jobs.log"):
        spark = session.make("summary", configuration, "local[*]")
    return lake.read(spark, configuration.lake.path)


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Redirect stderr of this process and its JVM to a file, because Spark logs before its log level can be set."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _draw(found: results.Outcome, freshness_s: Sequence[float]) -> None:
    from example import plots

    drawn = plots.draw(
        OUT,
        windows=found.windows,
        sessions=found.sessions,
        dead_letters=Counter(found.dead.values()),
        freshness_s=freshness_s,
        window_s=TIMES.window_s,
        session_gap_s=TIMES.session_gap_s,
    )
    print(f"plots           {OUT.relative_to(ROOT)}/: {', '.join(path.name for path in drawn)}")


@dataclass(frozen=True, slots=True)
class Reachable:
    """A broker, and the settings with which the example's clients and the jobs (`security`) reach it."""

    name: str
    bootstrap: str
    admin: topics.Reached
    shop: topics.Reached
    security: Mapping[str, str] = field(default_factory=dict)
    allow: Callable[[], None] = lambda: None


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[Reachable]:
    if options.bootstrap_server is not None:
        yield _plain(options.bootstrap_server)
    elif options.secured:
        from example import secured_node

        with secured_node.secured_node(OUT) as node:
            name = f"{node.bootstrap}, {node.security['protocol']}, {node.security['mechanism']}, ACLs"
            yield Reachable(name, node.bootstrap, node.admin, node.shop, node.security, partial(_allow, node))
    else:
        from pykbroker import Broker

        with Broker() as broker:
            yield _plain(broker.bootstrap_servers)


def _plain(bootstrap: str) -> Reachable:
    return Reachable(bootstrap, bootstrap, bootstrap, bootstrap)


def _allow(node: SecuredNode) -> None:
    """Add only the ACLs that the users of the jobs and of the generator need."""
    from example.secured_node import PIPELINE, SHOP
    from pipeline import config, permissions

    needed = permissions.needed(config.load(OUT / "pipeline.toml"))
    node.allow(PIPELINE, needed)
    node.allow(SHOP, {name: permissions.WRITE for name, operation in needed.items() if operation == permissions.READ})
    rules = (f"{operation} {name}" for name, operation in needed.items())
    print(f"acls            User:{PIPELINE}: {', '.join(rules)}")


def _configure(path: Path, broker: Reachable) -> None:
    times = "\n".join(f"{name} = {getattr(TIMES, name)}" for name in TIMES.__slots__)
    security = "".join(f"{key} = {json.dumps(value)}\n" for key, value in broker.security.items())
    path.write_text(
        f"""# Written by spark/example/run.py. What the keys mean: spark/pipeline.toml
checkpoints = "{OUT}/checkpoints"

[kafka]
bootstrap.servers = "{broker.bootstrap}"

{f"[security]{chr(10)}{security}" if security else ""}
[source]
max_offsets_per_trigger = 5000

[lake]
path = "{OUT}/lake"
compact_min_files = 4

[times]
{times}

[spark]
spark.driver.memory = "1g"
spark.sql.shuffle.partitions = "2"
spark.ui.enabled = "false"
spark.sql.warehouse.dir = "{OUT}/warehouse"
"""
    )


@contextmanager
def _jobs(options: argparse.Namespace) -> Iterator[Pipeline]:
    command = [sys.executable, str(SPARK / "jobs" / "all.py"), "--config", str(OUT / "pipeline.toml")]
    command += ["--continuous", "--trigger", str(options.trigger)]
    if options.master:
        command += ["--master", options.master]
    with (OUT / "jobs.log").open("wb") as log:
        env = {**os.environ, "PYTHONPATH": str(SPARK)}
        process = subprocess.Popen(  # noqa: S603  # Java and this program
            command, cwd=OUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
        )
    pipeline = Pipeline(OUT, process)
    try:
        yield pipeline
        process.terminate()
        code = process.wait(120)
        if code != 0:
            pipeline.check()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _feed(pipeline: Pipeline, sender: Sender, records: Sequence[Record]) -> None:
    """Send all records, and wait until all results are there."""
    print("jobs            starting; the first time Spark downloads its connector (log: build/pipeline/jobs.log)")
    # A first record starts a first batch in every job: Spark compiles its code then, and that takes a while.
    sender.send(records[:1])
    _wait(pipeline, pipeline.has_started, START_S)
    sending = threading.Thread(target=sender.send, args=(records[1:],), daemon=True)
    sending.start()
    while sending.is_alive():
        pipeline.check()
        sending.join(1)
        if sys.stdout.isatty():
            print(f"\rsending         {len(sender.delivered):,} of {len(records):,}", end="", flush=True)
    print(f"{chr(13) if sys.stdout.isatty() else ''}sent            {len(sender.delivered):,} records")
    if len(sender.delivered) < len(records):
        raise ExampleError("the generator could not send everything")
    _wait(pipeline, lambda: pipeline.has_read(watch.ends_of_delivered(sender.delivered)), PATIENCE_S)
    pipeline.wait_until_quiet()


def _wait(pipeline: Pipeline, happens: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not happens():
        pipeline.check()
        if time.monotonic() > deadline:
            raise ExampleError(f"the jobs did not come so far within {timeout_s} s; see {OUT / 'jobs.log'}")
        time.sleep(0.2)


def _print_summary(found: results.Outcome, answer: Expected, lake: watch.LakeWatch) -> bool:
    """Print the results; return True if they equal those of plain Python."""
    events = found.events.values()
    reasons = Counter(found.dead.values())
    ordered = {one.order_id for one in found.conversions}
    credited = {one.order_id for one in found.conversions if one.click_id is not None}
    print(f"events          {len(events):,} of {answer.records:,} records, {answer.duplicates:,} duplicates left out")
    codes = Counter(why.partition(" ")[0] for why in found.dead.values())
    print(
        f"dead letters    {len(found.dead):,}: "
        + ", ".join(f"{code} {n}" for code, n in codes.most_common(4))
        + ", ..."
    )
    late = sum(row.timestamp_ms - row.event.time_ms > 60_000 for row in found.rows)
    print(f"late            {late:,} by more than a minute and counted, {reasons['too-late']:,} too late")
    print(
        f"lake            {lake.files_written:,} files written, {len(lake.files):,} after "
        f"{lake.compactions:,} compactions"
    )
    print(f"windows         {len(found.windows):,} of {TIMES.window_s // 60} minutes, an event type and a country")
    print(f"sessions        {len(found.sessions):,} of {len({one.user for one in found.sessions}):,} users")
    print(
        f"conversions     {len(credited):,} of {len(ordered):,} orders follow a click, {len(found.conversions):,} pairs"
    )
    print(f"written again   {sum(found.repeated.values()):,} records in topics (0 unless a job was killed)")
    checks = {
        "lake": found.events == answer.events and len(found.rows) == len(answer.events),
        "dead letters": reasons == answer.by_reason,
        "windows": found.windows == answer.windows,
        "sessions": found.sessions == answer.sessions,
        "conversions": found.conversions == answer.conversions,
    }
    print("as computed     " + ", ".join(f"{name} {'yes' if right else 'NO'}" for name, right in checks.items()))
    return all(checks.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
