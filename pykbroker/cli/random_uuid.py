"""`pykbroker random-uuid`: what `kafka-storage random-uuid` prints."""

from __future__ import annotations

import argparse

from pykbroker_wire.primitives import random_uuid, uuid_to_str


def arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    import random

    print(uuid_to_str(random_uuid(random.SystemRandom())))
    return 0
