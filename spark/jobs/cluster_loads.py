"""`__pykbroker_metrics` -> the load of each partition of the cluster, for `pykbroker balance plan --loads`."""

import sys

from pipeline.loads_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
