"""Dead letters that this code can read now -> the raw topics. The lake still has each event once."""

import sys

from pipeline.job import main
from pipeline.queries import redrive

if __name__ == "__main__":
    sys.exit(main([redrive()], sys.argv[1:]))
