"""Events, each once -> the lake, a Delta table by date and topic. Exactly once."""

import sys

from pipeline.job import main
from pipeline.queries import LAKE

if __name__ == "__main__":
    sys.exit(main([LAKE], sys.argv[1:]))
