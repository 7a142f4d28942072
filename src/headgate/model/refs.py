"""How the model points at places."""

from typing import NamedTuple


class PortRef(NamedTuple):
    """One port of one service (`namespace/name`); what clients connect to and what splits are made of."""

    service: str
    port: int

    def __str__(self) -> str:
        return f"{self.service}:{self.port}"
