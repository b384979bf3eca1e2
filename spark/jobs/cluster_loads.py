"""`__pykbroker_metrics` -> what each partition of the cluster costs, for `pykbroker balance plan --loads`."""

import sys

from pipeline.loads_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
