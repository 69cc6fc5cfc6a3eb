"""`python -m runner`, the same as the `runner` command."""

import sys

from runner.cli import main

sys.exit(main())
