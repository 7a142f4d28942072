"""Fill the database with the votes of earlier: as many as the argument says for each option."""

import os
import sys

from lines import LineClient

if __name__ == "__main__":
    db = LineClient("db-0.db", 5432)
    db.send(f"PASSWORD {os.environ['DB_PASSWORD']}")
    for option in ("OPTION_A", "OPTION_B"):
        for number in range(int(sys.argv[1])):
            db.send(f"VOTE earlier-{option}-{number} {os.environ[option]}")
    print("filled")
