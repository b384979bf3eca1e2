"""A day of a shop into a broker that runs already: `python -m example.feed --bootstrap-server localhost:9092`.

Makes the topics that are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from example import topics
from example.generator import Workload, generate
from example.sending import Sender


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m example.feed", description="Writes a day of a shop into Kafka.")
    parser.add_argument("--bootstrap-server", default="localhost:9092", help="(default: %(default)s)")
    parser.add_argument("--users", type=int, default=500, help="of the shop (default: %(default)s, 8,000 records)")
    parser.add_argument(
        "--rate", type=float, default=200, help="records a second; 0: all at once (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another day (default: %(default)s)")
    options = parser.parse_args(argv)
    workload = Workload(options.seed, options.users)
    topics.create(options.bootstrap_server, workload.partitions)
    sender = Sender(options.bootstrap_server, rate=options.rate)
    sender.send(generate(workload))
    print(f"{len(sender.delivered):,} records written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
