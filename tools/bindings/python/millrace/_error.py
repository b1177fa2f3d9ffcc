"""What goes wrong, in the program's words."""


class Error(ValueError):
    """One line: what is wrong, where, and the nearest valid name. Bad input for the most part, and so a ValueError."""
