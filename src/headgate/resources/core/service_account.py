"""ServiceAccounts, which are only stored and shown."""

from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.kind import Kind

KIND = Kind(
    names_of("ServiceAccount", ""),
    columns=(NAME, Column("Secrets", cell=cells.count("secrets")), AGE),
    unserved=frozenset({"token"}),
)
