"""Send requests and print how often each answer came, as a JSON list: visit.py COUNT METHOD URL [COUNT METHOD URL ...].

`{}` in a URL is the number of the request, from 0 on. An answer is its status, with the `version` in its body, or the whole body of a failure of the server.
"""

import json
import sys
from collections import Counter
from urllib.error import HTTPError

from web import fetch


def visit(method: str, url: str) -> str:
    """Send one request; return its answer."""
    try:
        body = fetch(url, method=method)
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}" if error.code >= 500 else str(error.code)
    return " ".join(["200", *([body["version"]] if "version" in body else [])])


if __name__ == "__main__":
    groups = zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3], strict=True)
    answers = [Counter(visit(method, url.format(i)) for i in range(int(count))) for count, method, url in groups]
    print(json.dumps(answers))
