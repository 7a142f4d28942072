"""The error of a question whose answer would take too long."""


class Undecided(Exception):
    """The search has used up its steps, so the answer is unknown."""
