"""Events, each once -> the Parquet lake, by date and topic. Exactly once."""

import sys

from pipeline.job import main
from pipeline.queries import LAKE

if __name__ == "__main__":
    sys.exit(main([LAKE], sys.argv[1:]))
