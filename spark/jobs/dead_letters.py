"""Records that are not valid events -> the topic of dead letters, with the reason in headers. At least once."""

import sys

from pipeline.job import main
from pipeline.queries import DEAD_LETTERS

if __name__ == "__main__":
    sys.exit(main([DEAD_LETTERS], sys.argv[1:]))
