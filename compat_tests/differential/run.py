"""Run scripts against Apache Kafka and pykbroker and print where the answers differ.

python compat_tests/differential/run.py                     the names of the scripts
python compat_tests/differential/run.py NAME...             these (`all`: every one)
python compat_tests/differential/run.py NAME --show         and what was asked and answered
python compat_tests/differential/run.py --serve FILE        start Apache Kafka as it is needed here, and keep it running
python compat_tests/differential/run.py NAME --kafka FILE   compare with that one: a second instead of ten
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "wire"), str(ROOT / "log"), str(ROOT / "raft")]

from compat_tests.differential import nodes  # noqa: E402
from compat_tests.differential.compare import compare, run  # noqa: E402
from compat_tests.differential.scripts import SCRIPTS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--kafka", type=Path, metavar="FILE")
    parser.add_argument("--serve", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.serve:
        # So that Kafka ends with this process, however it is told to.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with nodes.apache_kafka() as kafka:
            options.serve.write_text(json.dumps([kafka.address, kafka.texts]))
            while True:
                time.sleep(60)
    if not options.names:
        print("\n".join(SCRIPTS))
        return 0
    names = list(SCRIPTS) if options.names == ["all"] else options.names
    failed = 0
    with ExitStack() as stack:
        if options.kafka:
            address, texts = json.loads(options.kafka.read_text())
            theirs, ours = nodes.Side("Apache Kafka", address, texts), stack.enter_context(nodes.pykbroker())
        else:
            theirs, ours = stack.enter_context(nodes.both())
        for name in names:
            started = time.monotonic()
            one = run(SCRIPTS[name], theirs, shared=bool(options.kafka))
            middle = time.monotonic()
            other = run(SCRIPTS[name], ours, shared=bool(options.kafka))
            ended = time.monotonic()
            found = compare(one, other)
            failed += bool(found)
            took = f"Kafka {middle - started:.1f} s, pykbroker {ended - middle:.1f} s"
            print(f"== {name}: {len(one)} steps, {took}: {'differs' if found else 'equal'}")
            print("\n".join(found))
            if options.show:
                for step, own in zip(one, other, strict=False):
                    print(f"-- {step.title}\n   asked {json.dumps(step.asked, ensure_ascii=False)[:1500]}")
                    print(f"   Kafka     {json.dumps(step.answered, ensure_ascii=False)[:3000]}")
                    print(f"   pykbroker {json.dumps(own.answered, ensure_ascii=False)[:3000]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
