"""`pykbroker dump-log`: what is in the files of a log directory, word for word as Apache Kafka's DumpLogSegments says
it; and with --verify, whether whole directories are in order.

Not here: `--remote-log-metadata-decoder`, because tiered storage is not there yet, and decoder classes other than
Kafka's own three: they are Java code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.dump.decoders import Decoder
    from pykbroker.dump.index_files import Complaints
    from pykbroker.dump.log_lines import Gaps

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="with --verify: log directories, partition folders or files"
    )
    parser.add_argument("--files", metavar="FILE,FILE", help="the files to print, separated by commas")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="print only what is wrong, a line each, and a summary; the exit status is 1 when something is",
    )
    parser.add_argument("--deep-iteration", action="store_true", help="print each record, not only each batch")
    parser.add_argument("--print-data-log", action="store_true", help="print records with key and payload")
    parser.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="of records print only key and payload, nothing of control records",
    )
    parser.add_argument("--max-bytes", type=int, metavar="BYTES", help="read no more of each log than this")
    parser.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="check indexes as a start does, without printing their entries",
    )
    parser.add_argument(
        "--verify-index-only",
        action="store_true",
        help="compare indexes with their logs without printing their entries",
    )
    parser.add_argument(
        "--max-message-size",
        type=int,
        default=5 << 20,
        metavar="BYTES",
        help="the largest batch that an index may point at",
    )
    decoders = parser.add_argument_group("decoders, each of which implies --print-data-log")
    decoders.add_argument("--offsets-decoder", action="store_true", help="records are those of __consumer_offsets")
    decoders.add_argument("--transaction-log-decoder", action="store_true", help="... of __transaction_state")
    decoders.add_argument("--cluster-metadata-decoder", action="store_true", help="... of __cluster_metadata")
    decoders.add_argument("--share-group-state-decoder", action="store_true", help="... of __share_group_state")
    decoders.add_argument(
        "--remote-log-metadata-decoder", action="store_true", help="... of __remote_log_metadata (not supported yet)"
    )
    for what in ("key", "value"):
        decoders.add_argument(
            f"--{what}-decoder-class",
            nargs="?",
            const=STRING_DECODER,
            metavar="CLASS",
            help=f"how to read each {what}: Apache Kafka's StringDecoder (default), IntegerDecoder or LongDecoder",
        )


def run(options: argparse.Namespace) -> int:
    from pykbroker.cli.apart import run_apart

    return run_apart(partial(_run, options))


def _run(options: argparse.Namespace, on_map: Callable[[str], None]) -> int:
    if options.verify:
        return _verify([*options.paths, *_files(options)], on_map)
    if not options.files or options.paths:
        print("pykbroker: --files with at least one file is needed, or --verify with paths", file=sys.stderr)
        return 1
    return _Dump(options, on_map).run(_files(options))


def _files(options: argparse.Namespace) -> list[str]:
    return [name.strip() for name in (options.files or "").split(",") if name.strip()]


def _write(lines: Iterable[str]) -> None:
    """Payloads are any bytes: what is printed is UTF-8, whatever the terminal says."""
    out = sys.stdout.buffer
    for line in lines:
        out.write(line.encode() + b"\n")
    out.flush()


class _Dump:
    """One run over several files; what is wrong with them is said at the end."""

    def __init__(self, options: argparse.Namespace, on_map: Callable[[str], None]) -> None:
        self._options = options
        self._on_map = on_map
        self._gaps: dict[str, Gaps] = {}
        self._index_complaints: dict[str, Complaints] = {}
        self._time_complaints: dict[str, Complaints] = {}

    def run(self, files: Sequence[str]) -> int:
        from pykbroker.dump.decoders import DecodeFailure
        from pykbroker.dump.file_batches import NotABatch
        from pykbroker.dump.index_files import BadIndex

        status = 0
        for path in files:
            _write([f"Dumping {path}"])
            try:
                _write(self._lines(path))
            except (NotABatch, BadIndex, DecodeFailure, OSError, ValueError) as error:
                sys.stdout.flush()
                print(f"pykbroker: {path}: {error}", file=sys.stderr)
                status = 1
        for line in self._said():
            print(line, file=sys.stderr)
        return status

    def _lines(self, path: str) -> Iterator[str]:
        from pykbroker.dump import index_files
        from pykbroker.dump.log_lines import MAX_BYTES, Gaps, LogOptions, dump_log
        from pykbroker_log import names
        from pykbroker_log.disk import read_file
        from pykbroker_log.os_disk.disk import OsDisk

        disk, options = OsDisk(on_map=self._on_map), self._options
        folder, name = os.path.split(path)
        stem, dot, suffix = name.rpartition(".")
        suffix = dot + suffix
        if not dot or suffix not in (
            names.LOG, ".checkpoint", names.OFFSET_INDEX, names.TIME_INDEX, names.SNAPSHOT, names.TXN_INDEX,
        ):  # fmt: skip
            print(f"Ignoring unknown file {path}", file=sys.stderr)
            return
        if suffix in (names.LOG, ".checkpoint"):
            decoder, has_decoder = self._decoder()
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

    def _decoder(self) -> tuple[Decoder, bool]:
        """And whether one was asked for."""
        from pykbroker.dump import decoders

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
        chosen = decoders.plain_decoder(*(name or STRING_DECODER for name in classes))
        return chosen, any(classes)

    def _said(self) -> Iterator[str]:
        for path, said in self._index_complaints.items():
            if said.mismatches:
                yield f"Mismatches in :{path}"
                yield from (f"  Index offset: {one}, log offset: {other}" for one, other in said.mismatches)
        for path, said in self._time_complaints.items():
            if said.mismatches:
                yield f"Found timestamp mismatch in :{path}"
                yield from (f"  Index timestamp: {one}, log timestamp: {other}" for one, other in said.mismatches)
        for path, said in self._time_complaints.items():
            if said.out_of_order:
                yield f"Found out of order timestamp in :{path}"
                yield from (
                    f"  Index timestamp: {one}, Previously indexed timestamp: {other}"
                    for one, other in said.out_of_order
                )
        for path, said in self._time_complaints.items():
            if said.not_found:
                yield f"The following indexed offsets are not found in :{path}"
                yield from (f"Indexed offset: {one}, found log offset: {other}" for one, other in said.not_found)
        for path, gaps in self._gaps.items():
            if gaps.pairs:
                yield f"Non-consecutive offsets in {path}"
                yield from (f"  {before} is followed by {behind}" for before, behind in gaps.pairs)


def _verify(paths: Sequence[str], on_map: Callable[[str], None]) -> int:
    from pykbroker.dump.verify import DirectoryVerifier
    from pykbroker_log.os_disk.disk import OsDisk

    if not paths:
        print("pykbroker: --verify needs directories or files", file=sys.stderr)
        return 1
    verifier = DirectoryVerifier(OsDisk(on_map=on_map))
    found = False
    for path in paths:
        for finding in verifier.verify(path):
            found = True
            _write([str(finding)])
    _write([verifier.summary()])
    return int(found)
