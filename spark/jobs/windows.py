"""Counts and sums by window of event time, event type and country -> a compacted topic. Effectively once."""

import sys

from pipeline.job import main
from pipeline.queries import WINDOWS

if __name__ == "__main__":
    sys.exit(main([WINDOWS], sys.argv[1:]))
