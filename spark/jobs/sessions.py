"""Each user's events without a gap between them -> a compacted topic. Effectively once."""

import sys

from pipeline.job import main
from pipeline.queries import SESSIONS

if __name__ == "__main__":
    sys.exit(main([SESSIONS], sys.argv[1:]))
