"""Buy something for a number of users, print how often each answer came, and wait for SIGTERM."""

import json
import os
import signal
from collections import Counter

from visit import visit

SHOP = os.environ["FRONTEND_ADDR"]

if __name__ == "__main__":
    answers: Counter[str] = Counter()
    for user in range(int(os.environ["USERS"])):
        card = "expired" if user % 5 == 0 else "valid"
        for method, path in (("GET", "/"), ("POST", f"/cart/{user}/mug"), ("POST", f"/checkout/{user}/{card}")):
            answers[f"{method} {path.split('/')[1]} {visit(method, f'http://{SHOP}{path}')}"] += 1
    print(json.dumps(answers), flush=True)
    signal.sigwait([signal.SIGTERM])
