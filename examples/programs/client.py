"""An HTTP client that prints every REPORT_SECONDS (5) which version answered how often.

usage: client.py URL... [--user "NAME=HEADER: VALUE"]...

It sends REQUESTS_PER_SECOND (50) to each URL. With users, each request is of the next user, who keeps the cookies that the server
sets. Where the environment has an `http_proxy`, requests go through it, because it knows the names of Services.
"""

import argparse
import collections
import http.client
import os
import signal
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterable

PAUSE = 1 / float(os.environ.get("REQUESTS_PER_SECOND", "50"))
REPORT_SECONDS = float(os.environ.get("REPORT_SECONDS", "5"))
TIMEOUT_SECONDS = 5
PROXY = urllib.parse.urlsplit(os.environ.get("http_proxy", ""))


class User:
    """A user of a URL, with the results of its requests."""

    def __init__(self, url: str, name: str, headers: dict[str, str]) -> None:
        self.target = urllib.parse.urlsplit(url)
        self.name = name
        self.headers = {"Host": self.target.netloc, **headers}
        self.cookies = dict(pair.split("=", 1) for pair in headers.get("Cookie", "").split("; ") if "=" in pair)
        self.path = url if PROXY.hostname else self.target._replace(scheme="", netloc="").geturl() or "/"
        host = PROXY if PROXY.hostname else self.target
        self.connection = http.client.HTTPConnection(host.hostname or "", host.port or 80, timeout=TIMEOUT_SECONDS)
        self.results: collections.Counter[str] = collections.Counter()
        self.is_served = False

    def send(self) -> str:
        """Send a request; return the first word of the response, or what went wrong."""
        try:
            self.connection.request("GET", self.path, headers=self.headers)
            response = self.connection.getresponse()
            words = response.read().decode(errors="replace").split()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            return type(error).__name__
        self.remember(response.getheader("Set-Cookie"))
        self.is_served = response.status == 200
        return words[0] if self.is_served and words else f"status {response.status}"

    def remember(self, cookie: str | None) -> None:
        """Send a response's cookie with the next requests, as a browser does."""
        if cookie and self.name:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
            self.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def report(self) -> str:
        results = "  ".join(f"{result}: {count}" for result, count in sorted(self.results.items()))
        self.results.clear()
        return f"{self.name}: {results}" if self.name else results


def run(users: Iterable[User]) -> None:
    """Send requests forever, of one user after the other, once the server answers: its start counts no failures."""
    users = list(users)
    first = User(users[0].target.geturl(), "", {})
    while first.send() and not first.is_served:
        time.sleep(0.5)
    due, report = time.monotonic(), time.monotonic() + REPORT_SECONDS
    while True:
        for user in users:
            user.results[user.send()] += 1
            due = max(due + PAUSE, time.monotonic() - 1)  # after a delay, at most a second's requests at once
            time.sleep(max(due - time.monotonic(), 0))
        if time.monotonic() >= report:
            print("\n".join(user.report() for user in users) + "\n", end="")
            report = time.monotonic() + REPORT_SECONDS


def users(url: str, texts: Iterable[str], name: str) -> list[User]:
    """Return the users of a URL: those of the command line, or one without headers."""
    pairs = [text.partition("=")[::2] for text in texts] or [(name, "")]
    return [User(url, who, dict([header.split(": ", 1)] if header else [])) for who, header in pairs]


parser = argparse.ArgumentParser()
parser.add_argument("urls", nargs="+", metavar="URL")
parser.add_argument("--user", action="append", default=[], metavar="NAME=HEADER: VALUE")
arguments = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for url in arguments.urls:
    name = str(urllib.parse.urlsplit(url).hostname) if len(arguments.urls) > 1 else ""
    threading.Thread(target=run, args=[users(url, arguments.user, name)], daemon=True).start()
while True:
    signal.pause()
