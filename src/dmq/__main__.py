"""`python -m dmq`: the same as the command `dmq`."""

import sys

from dmq.cli.main import main

sys.exit(main())
