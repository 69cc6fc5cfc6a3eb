"""As the project's own cases do where they do not know the release."""

import sys

sys.exit("vLLM 0.9.2 is older than the releases that the cases serve")
