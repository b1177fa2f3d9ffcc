"""`python -m millrace.export FILE.py:FUNCTION -o net.pt`: a PyTorch module as a file for the program."""

import sys

from millrace._export_command import main

if __name__ == "__main__":
    sys.exit(main())
