"""Orders and the clicks before them -> a compacted topic. Effectively once."""

import sys

from pipeline.job import main
from pipeline.queries import CONVERSIONS

if __name__ == "__main__":
    sys.exit(main([CONVERSIONS], sys.argv[1:]))
