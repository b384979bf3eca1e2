"""`python -m pykbroker` is the `pykbroker` command."""

import sys

from pykbroker.cli.main import main

sys.exit(main())
