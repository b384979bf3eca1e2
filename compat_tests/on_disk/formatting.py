"""Directories that Apache Kafka's kafka-storage and `pykbroker format` have formatted with the same arguments, and
their content. No server is started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from compat_tests.built import java_classes
from compat_tests.on_disk.home import Owner
from pykbroker.__main__ import main
from pykbroker.config.properties import parse
from pykbroker_log.checkpoints import decode_uuid
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records
from pykbroker_wire.stored_framing import decode_metadata_record
from testkit.oracle.kafka import KAFKA, SINGLE_NODE, java_command

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
BOTH: tuple[Owner, ...] = ("kafka", "pykbroker")


@dataclass(frozen=True)
class Case:
    """The arguments after `format --cluster-id ID --config FILE`, and additional keys of server.properties."""

    words: str
    config: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.words, *(f"{key}={value}" for key, value in self.config)]).strip()


def case(words: str = "--standalone", **config: str) -> Case:
    return Case(words, tuple((key.replace("__", "."), value) for key, value in config.items()))


#: The voters are in the configuration, as before KIP-853.
STATIC = case("", controller__quorum__voters="1@localhost:19093", controller__quorum__bootstrap__servers="").config


class Ended(NamedTuple):
    status: int
    said: str


def without_4_4(said: str) -> str:
    """Remove the levels after 4.3 from a text, because the tool of 4.3.1 does not know them all, and that of 4.4.0
    knows one of 4.5."""
    return re.sub(r"from 7 to \d+", "from 7 to the highest", re.sub(r", 4\.[45]-IV\d", "", said))


class Place:
    """Two log directories of one node, the metadata log in the second, and its server.properties."""

    def __init__(self, root: Path, config: Mapping[str, str]) -> None:
        self.folders = (root / "first", root / "second")
        first, second = map(str, self.folders)
        values = {
            **SINGLE_NODE,
            "listeners": "PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093",
            "controller.quorum.bootstrap.servers": "localhost:19093",
            "log.dirs": f"{first},{second}",
            "metadata.log.dir": second,
            **config,
        }
        root.mkdir(parents=True)
        self.properties = root / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def moved(self, old: Path, new: Path) -> Place:
        """Return the same place after a folder above it was renamed; server.properties stay unchanged."""
        place = object.__new__(Place)
        first, second = (new / folder.relative_to(old) for folder in self.folders)
        place.folders = (first, second)
        place.properties = new / self.properties.relative_to(old)
        return place

    def line(self, words: str) -> list[str]:
        return ["format", "--cluster-id", CLUSTER_ID, "--config", str(self.properties), *words.split()]


def run_kafka(lines: Sequence[Sequence[str]], version: str = KAFKA) -> list[Ended]:
    classes = java_classes(Path(__file__).with_name("FormatAll.java"))
    done = subprocess.run(
        java_command("FormatAll", extra_classpath=classes, version=version),
        input=json.dumps(lines),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [Ended(each["status"], each["said"]) for each in json.loads(done.stdout.splitlines()[-1])]


def run_pykbroker(lines: Sequence[Sequence[str]]) -> list[Ended]:
    return [_run_pykbroker(line) for line in lines]


def _run_pykbroker(line: Sequence[str]) -> Ended:
    with redirect_stdout(StringIO()) as said, redirect_stderr(said):
        try:
            status = main(["storage", *line])
        except SystemExit as ended:
            # argparse refuses arguments in this way.
            status = int(ended.code or 0)
    return Ended(status, said.getvalue())


RUN = {"kafka": run_kafka, "pykbroker": run_pykbroker}


def formatted(root: Path, owner: Owner, cases: Sequence[Case]) -> list[tuple[Place, Ended]]:
    """Format each case in a place of its own."""
    shutil.rmtree(root, ignore_errors=True)
    places = [Place(root / str(number), dict(case.config)) for number, case in enumerate(cases)]
    ended = RUN[owner]([place.line(case.words) for place, case in zip(places, cases, strict=True)])
    return list(zip(places, ended, strict=True))


# The content of a directory.


def properties_of(folder: Path) -> dict[str, str]:
    return parse((folder / "meta.properties").read_text())


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def records_of(data: bytes, directory_id: bytes) -> Iterator[tuple[str, str]]:
    """Yield each record of a log or a snapshot: its description, and its bytes, with the id of the directory masked."""
    for position, header in iter_batches(data):
        for record in iter_records(data, position, header):
            value = bytes(record.value or b"").replace(directory_id, bytes(16))
            where = f"at {record.offset} in epoch {header.partition_leader_epoch}"
            if header.is_control:
                kind = parse_control(record).type
                # A snapshot's header has the time, and nothing else.
                yield f"{kind.name} {where}", "" if kind is ControlType.SNAPSHOT_HEADER else value.hex()
            else:
                yield f"{decode_metadata_record(value)!r} {where}", value.hex()


def described(folder: Path) -> dict[str, object]:
    """Return the content of a formatted directory without the values that the tool generates."""
    properties = properties_of(folder)
    directory_id = decode_uuid(properties.pop("directory.id"))
    found: dict[str, object] = {"meta.properties": properties, "files": files_of(folder)}
    for path in folder.rglob("*.checkpoint"):
        found[str(path.relative_to(folder))] = list(records_of(path.read_bytes(), directory_id))
    return found
