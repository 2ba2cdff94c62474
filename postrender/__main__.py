"""`python -m postrender`, and the entry point of the folder that Helm starts."""

import sys

from postrender.cli import main

if __name__ == "__main__":
    sys.exit(main())
