"""`pykbroker logs`: print the files of a log directory, word for word as Apache Kafka's DumpLogSegments does, and
verify whole directories.

Not supported: `--remote-log-metadata-decoder`, because there is no tiered storage yet, and decoder classes other than
Kafka's own three, because they are Java code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pykbroker.entry import failures
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, output_option

if TYPE_CHECKING:
    from pykbroker.tools.dump.decoders import Decoder
    from pykbroker.tools.dump.index_files import Complaints
    from pykbroker.tools.dump.log_lines import Gaps

F = TypeVar("F", bound=Callable[..., Any])

STRING_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of the command line."""

    deep_iteration: bool
    print_data_log: bool
    skip_record_metadata: bool
    max_bytes: int | None
    index_sanity_check: bool
    verify_index_only: bool
    max_message_size: int
    offsets_decoder: bool
    transaction_log_decoder: bool
    cluster_metadata_decoder: bool
    share_group_state_decoder: bool
    remote_log_metadata_decoder: bool
    key_decoder_class: str | None
    value_decoder_class: str | None


def _decoder_class(what: str) -> Callable[[F], F]:
    return click.option(
        f"--{what}-decoder-class",
        is_flag=False,
        flag_value=STRING_DECODER,
        metavar="CLASS",
        help=f"How to read each {what}: Apache Kafka's StringDecoder (default), IntegerDecoder or LongDecoder.",
    )


_OPTIONS: Final = (
    click.option("--deep-iteration", is_flag=True, help="Print each record, not only each batch."),
    click.option("--print-data-log", is_flag=True, help="Print records with key and payload."),
    click.option(
        "--skip-record-metadata",
        is_flag=True,
        help="Of records print only key and payload, nothing of control records.",
    ),
    click.option("--max-bytes", type=int, metavar="BYTES", help="Read no more of each log than this."),
    click.option(
        "--index-sanity-check", is_flag=True, help="Check indexes as a start does, without printing their entries."
    ),
    click.option(
        "--verify-index-only", is_flag=True, help="Compare indexes with their logs without printing their entries."
    ),
    click.option(
        "--max-message-size",
        type=int,
        default=5 << 20,
        metavar="BYTES",
        help="The largest batch that an index may point at.",
    ),
    click.option(
        "--offsets-decoder", is_flag=True, help="Records are those of __consumer_offsets. Implies --print-data-log."
    ),
    click.option("--transaction-log-decoder", is_flag=True, help="... of __transaction_state."),
    click.option("--cluster-metadata-decoder", is_flag=True, help="... of __cluster_metadata."),
    click.option("--share-group-state-decoder", is_flag=True, help="... of __share_group_state."),
    click.option(
        "--remote-log-metadata-decoder", is_flag=True, help="... of __remote_log_metadata (not supported yet)."
    ),
    _decoder_class("key"),
    _decoder_class("value"),
)


def dump_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decide how files are printed; DumpOptions takes their values."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.group("logs", cls=CommandGroup)
def command() -> None:
    """Print and verify the files of a log directory, of this node or of Apache Kafka."""


@command.command(
    "dump",
    example="pykbroker logs dump --print-data-log orders-0/00000000000000000000.log"
    "\npykbroker logs dump --cluster-metadata-decoder /var/lib/pykbroker/__cluster_metadata-0",
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@dump_options
def dump(paths: tuple[str, ...], **words: Any) -> int:
    """Print what is in files, as Apache Kafka's DumpLogSegments does.

    For a directory, these are its logs, indexes, snapshots and checkpoints, and those of its partitions.
    """
    from pykbroker.tools.commands.apart import run_apart

    return run_apart(partial(dump_files, [file for path in paths for file in _files_of(path)], DumpOptions(**words)))


@command.command("verify", example="pykbroker logs verify /var/lib/pykbroker")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@output_option
def verify(paths: tuple[str, ...], out: Output) -> int:
    """Find what is wrong with log directories, partition folders or files.

    A line for each finding, and a summary; the exit status is 1 when something is wrong. Nothing is changed.
    """
    from pykbroker.tools.commands.apart import run_apart

    return run_apart(partial(verify_paths, paths, out))


def _files_of(path: str) -> Iterator[str]:
    """Yield the file, or the files of a directory that can be printed, in the order of their names."""
    if not os.path.isdir(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        inside = os.path.join(path, name)
        if os.path.isdir(inside) or os.path.splitext(name)[1] in _suffixes():
            yield from _files_of(inside)


def _suffixes() -> tuple[str, ...]:
    from pykbroker_log import names

    return (names.LOG, ".checkpoint", names.OFFSET_INDEX, names.TIME_INDEX, names.SNAPSHOT, names.TXN_INDEX)


def dump_files(files: Sequence[str], options: DumpOptions, on_map: Callable[[str], None]) -> int:
    """Print files; returns the exit status."""
    return _Dump(options, on_map).run(files)


def _write(lines: Iterable[str]) -> None:
    """Write lines as UTF-8 in every locale, because payloads may have any characters."""
    out = sys.stdout.buffer
    for line in lines:
        out.write(line.encode() + b"\n")
    out.flush()


class _Dump:
    """One run over several files; it prints complaints about them at the end."""

    def __init__(self, options: DumpOptions, on_map: Callable[[str], None]) -> None:
        self._options = options
        self._on_map = on_map
        self._gaps: dict[str, Gaps] = {}
        self._index_complaints: dict[str, Complaints] = {}
        self._time_complaints: dict[str, Complaints] = {}

    def run(self, files: Sequence[str]) -> int:
        from pykbroker.tools.dump.decoders import DecodeFailure
        from pykbroker.tools.dump.file_batches import NotABatch
        from pykbroker.tools.dump.index_files import BadIndex

        status = 0
        for path in files:
            _write([f"Dumping {path}"])
            try:
                _write(self._lines(path))
            except (NotABatch, BadIndex, DecodeFailure, OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else None
                failures.say(f"{path}: {reason or error}")
                status = 1
        for line in self._said():
            print(line, file=sys.stderr)
        return status

    def _lines(self, path: str) -> Iterator[str]:
        from pykbroker.tools.dump import index_files
        from pykbroker.tools.dump.log_lines import MAX_BYTES, Gaps, LogOptions, dump_log
        from pykbroker_log import names
        from pykbroker_log.disk import read_file
        from pykbroker_log.os_disk.disk import OsDisk

        disk, options = OsDisk(on_map=self._on_map), self._options
        folder, name = os.path.split(path)
        stem, dot, suffix = name.rpartition(".")
        suffix = dot + suffix
        if not dot or suffix not in _suffixes():
            print(f"Ignoring unknown file {path}", file=sys.stderr)
            return
        if suffix in (names.LOG, ".checkpoint"):
            of_metadata = suffix == ".checkpoint" or _folder_of(path).startswith("__cluster_metadata-")
            decoder, has_decoder = self._decoder(of_metadata)
            log_options = LogOptions(
                deep=options.deep_iteration or options.print_data_log or has_decoder,
                contents=options.print_data_log or has_decoder,
                metadata=not options.skip_record_metadata,
                max_bytes=MAX_BYTES if options.max_bytes is None else options.max_bytes,
                decoder=decoder,
            )
            gaps = self._gaps[os.path.abspath(path)] = Gaps()
            yield from dump_log(path, disk.open(path).reader(), log_options, gaps)
        elif suffix == names.SNAPSHOT:
            yield from index_files.dump_producers(read_file(disk, path))
        elif suffix == names.TXN_INDEX:
            yield from index_files.dump_txn_index(read_file(disk, path))
        else:
            index_options = index_files.IndexOptions(
                sanity_only=options.index_sanity_check,
                verify_only=options.verify_index_only,
                max_message_bytes=options.max_message_size,
            )
            said = index_files.Complaints()
            log = disk.open(os.path.join(folder, stem + names.LOG)).reader()
            data = read_file(disk, path)
            if suffix == names.OFFSET_INDEX:
                self._index_complaints[os.path.abspath(path)] = said
                yield from index_files.dump_index(path, data, int(stem), log, index_options, said)
            else:
                self._time_complaints[os.path.abspath(path)] = said
                index = read_file(disk, os.path.join(folder, stem + names.OFFSET_INDEX))
                yield from index_files.dump_time_index(path, data, int(stem), index, log, index_options, said)

    def _decoder(self, of_metadata: bool) -> tuple[Decoder, bool]:
        """Return the decoder, and True if the options chose one."""
        from pykbroker.tools.dump import decoders

        options = self._options
        if options.offsets_decoder:
            return decoders.coordinator_decoder("group"), True
        if options.transaction_log_decoder:
            return decoders.coordinator_decoder("transaction"), True
        if options.cluster_metadata_decoder:
            return decoders.metadata_decoder, True
        if options.share_group_state_decoder:
            return decoders.coordinator_decoder("share"), True
        if options.remote_log_metadata_decoder:
            raise decoders.DecodeFailure(
                "--remote-log-metadata-decoder is not supported: there is no tiered storage yet"
            )
        classes = options.key_decoder_class, options.value_decoder_class
        chosen = decoders.plain_decoder(*(name or STRING_DECODER for name in classes), of_metadata=of_metadata)
        return chosen, any(classes)

    def _said(self) -> Iterator[str]:
        indexes, times = self._index_complaints.items(), self._time_complaints.items()
        gaps = ((path, found.pairs) for path, found in self._gaps.items())
        yield from _complaints(
            "Mismatches in :", "  Index offset: {}, log offset: {}", ((path, said.mismatches) for path, said in indexes)
        )
        yield from _complaints(
            "Found timestamp mismatch in :",
            "  Index timestamp: {}, log timestamp: {}",
            ((path, said.mismatches) for path, said in times),
        )
        yield from _complaints(
            "Found out of order timestamp in :",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
            ((path, said.out_of_order) for path, said in times),
        )
        yield from _complaints(
            "The following indexed offsets are not found in :",
            "Indexed offset: {}, found log offset: {}",
            ((path, said.not_found) for path, said in times),
        )
        yield from _complaints("Non-consecutive offsets in ", "  {} is followed by {}", gaps)


def _folder_of(path: str) -> str:
    return os.path.basename(os.path.dirname(os.path.realpath(path)))


def _complaints(heading: str, line: str, found: Iterable[tuple[str, Sequence[tuple[int, int]]]]) -> Iterator[str]:
    """Yield a heading for each file with complaints, and a line for each pair of numbers."""
    for path, pairs in found:
        if pairs:
            yield f"{heading}{path}"
            yield from (line.format(*pair) for pair in pairs)


def verify_paths(paths: Sequence[str], out: Output, on_map: Callable[[str], None]) -> int:
    """Print the findings about these paths; returns the exit status."""
    from pykbroker.tools.dump.verify import DirectoryVerifier, Finding
    from pykbroker_log.os_disk.disk import OsDisk

    verifier = DirectoryVerifier(OsDisk(on_map=on_map))
    found: list[Finding] = []
    for path in paths:
        for finding in verifier.verify(path):
            found.append(finding)
            if not out.is_json:
                _write([str(finding)])
    if out.is_json:
        out.document({"findings": found, "summary": verifier.summary()})
    else:
        _write([verifier.summary()])
    return int(bool(found))
