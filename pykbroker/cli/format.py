"""`pykbroker format`: what `kafka-storage format --standalone` does to the log directories of a properties file."""

from __future__ import annotations

import argparse
import random
import sys
import time

from pykbroker.cli import settings
from pykbroker.config.kinds import ConfigError
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str


def arguments(parser: argparse.ArgumentParser) -> None:
    settings.add_arguments(parser)
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster id (default: a new one)")
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories that are formatted already as they are"
    )


def run(options: argparse.Namespace) -> int:
    from pykbroker.storage_format import StorageFormatError, format_directories, random_uuid
    from pykbroker_log.disk import OsDisk

    rng = random.SystemRandom()
    try:
        config = settings.read(options, settings.default_data_dir(), None).config
        cluster_id = options.cluster_id or uuid_to_str(random_uuid(rng))
        uuid_from_str(cluster_id)
        formatted = format_directories(
            OsDisk(),
            config,
            cluster_id,
            rng,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=options.ignore_formatted,
        )
    except (ConfigError, StorageFormatError, OSError, ValueError) as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    for directory in formatted:
        print(f"Formatting {directory} with metadata.version 4.3-IV0.")
    return 0
