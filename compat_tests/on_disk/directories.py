"""Data directories of earlier releases, and of Apache Kafka, kept in tests/golden/data_directories.

    python -m compat_tests.on_disk.directories NAME [--by kafka] [--checkout DIR] [--without transactions ...]

The command makes NAME-clean and NAME-killed: an archive of the directory, with a manifest of its content as clients
read it just before the end. Each release adds its own; existing ones are never made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from compat_tests.on_disk.estate import manifest
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import EVERYTHING, Life

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "data_directories"
#: Few partitions, so that an archive stays small.
MAKING = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
}
#: Whenever an archive is opened, nothing in it is too old.
KEEPING = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "86400000",
    "offsets.retention.minutes": "2147483647",
    "offsets.retention.check.interval.ms": "86400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "86400000",
}
LOG_DIR = "data"


def make(name: str, *, by_kafka: bool, checkout: Path | None, serves: frozenset[str]) -> None:
    for how in ("clean", "killed"):
        owner: Owner = "kafka" if by_kafka else "pykbroker"
        with Home(MAKING, log_dirs=(LOG_DIR,), checkout=checkout) as home:
            home.format(owner)
            home.start(owner)
            life = Life(home, records=12, serves=serves, compressible=True)
            life.settle()
            found = manifest(life.inventory(), compacted=life.compacted())
            home.stop() if how == "clean" else home.kill()
            archive = GOLDEN / f"{name}-{how}.tar.xz"
            # Sparse, so that preallocated space of Apache Kafka is neither stored nor unpacked.
            subprocess.run(["tar", "-C", str(home.path), "--sparse", "-cJf", str(archive), LOG_DIR], check=True)
            archive.with_suffix("").with_suffix(".json").write_text(json.dumps(found, sort_keys=True) + "\n")
            print(f"{archive.name}: {archive.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--by", choices=["kafka", "pykbroker"], default="pykbroker")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--without", action="append", default=[], choices=sorted(EVERYTHING))
    options = parser.parse_args()
    serves = EVERYTHING - set(options.without)
    make(options.name, by_kafka=options.by == "kafka", checkout=options.checkout, serves=serves)


if __name__ == "__main__":
    main()
