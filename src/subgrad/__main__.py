import sys

from subgrad.cli import main

sys.exit(main())
