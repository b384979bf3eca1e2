"""Write a day of a shop to a broker that runs already: `python -m example.feed --bootstrap-server localhost:9092`.

It creates the topics that are missing. `--config` names a configuration file like that of the jobs; only its tables
[kafka] and [security] are used. Its user needs permission to create topics and to write to clicks and orders, which the
user of the jobs does not need.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from example import topics
from example.generator import Workload, generate
from example.sending import Sender
from pipeline import config as configuration
from pipeline import secured
from pipeline.errors import PipelineError


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m example.feed", description="Writes a day of a shop into Kafka.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-server", default="localhost:9092", help="(default: %(default)s)")
    where.add_argument("--config", help="a pipeline.toml that says how a secured cluster is reached")
    parser.add_argument("--users", type=int, default=500, help="of the shop (default: %(default)s, 8,000 records)")
    parser.add_argument(
        "--rate", type=float, default=200, help="records a second; 0: all at once (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another day (default: %(default)s)")
    options = parser.parse_args(argv)
    workload = Workload(options.seed, options.users)
    kafka: topics.Reached = options.bootstrap_server
    if options.config:
        try:
            kafka = secured.librdkafka(configuration.load(options.config).kafka)
        except PipelineError as error:
            print(error, file=sys.stderr)
            return 2
    topics.create(kafka, workload.partitions)
    sender = Sender(kafka, rate=options.rate)
    sender.send(generate(workload))
    print(f"{len(sender.delivered):,} records written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
