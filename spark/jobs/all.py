"""All jobs in one driver, as on a laptop; each has its own checkpoint, as if it ran alone."""

import sys

from pipeline.job import main
from pipeline.queries import ALL

if __name__ == "__main__":
    sys.exit(main(ALL, sys.argv[1:]))
