"""The error of this package."""


class Error(ValueError):
    """One line: what is wrong, where, and the nearest valid name. A ValueError, as it is mostly about bad input."""
