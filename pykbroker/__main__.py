"""`python -m pykbroker` is the `pykbroker` command."""

import sys

from pykbroker.tools.commands.main import main

sys.exit(main())
