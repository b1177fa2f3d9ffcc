"""`python -m millrace`, of a wheel: the same as `millrace`."""

from millrace._program import main

main()
