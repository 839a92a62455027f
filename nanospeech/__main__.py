"""`python -m nanospeech` is the command nanospeech."""

import sys

from nanospeech.commands import main

sys.exit(main())
