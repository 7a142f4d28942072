"""The limits of a search, and the errors of a question whose answer would take too long."""


class Undecided(Exception):
    """The search for one answer has used up its steps, so the answer is unknown."""


class Exhausted(Exception):
    """All answers together have used up their steps."""


class Work:
    """The steps that several answers may take together. A step takes about as long as one derivative of an expression: 3 us."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps. Raises Exhausted if there are not enough left."""
        self.left -= steps
        if self.left < 0:
            raise Exhausted
