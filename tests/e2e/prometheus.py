"""Run a real Prometheus that scrapes the targets of a test."""

import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.waiting import until
from tests.wire import DEADLINE_S

BINARY = shutil.which("prometheus")
MISSING = "no prometheus is installed (Debian: prometheus)"


class Prometheus:
    """A running Prometheus; `url` is the base of its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> Sequence[Any]:
        """Run a query; return its result, an instant vector."""
        answer = self.get(f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        return list(answer["data"]["result"])

    def get(self, path: str) -> Any:
        """GET a path of the API; return the decoded JSON."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=DEADLINE_S) as answer:
            return json.loads(answer.read())

    def healthy(self) -> bool:
        """Return whether Prometheus is ready."""
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.url}/-/ready", timeout=DEADLINE_S).close()
            return True
        return False


@contextlib.contextmanager
def prometheus(
    root: Path,
    *targets: str,
    rules: Path | None = None,
    host: str = "127.0.0.1",
    job: Mapping[str, Any] | None = None,
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `targets` (host:port) every second.

    `rules` is a file of recording rules, `host` the address at which it listens. `job` has more fields of its scrape job.
    """
    assert BINARY
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "headgate", "static_configs": [{"targets": list(targets)}], **(job or {})}],
        "rule_files": [str(rules)] if rules else [],
    }
    root.mkdir()
    (root / "prometheus.yml").write_text(json.dumps(config))
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                BINARY,
                f"--config.file={root / 'prometheus.yml'}",
                f"--storage.tsdb.path={root / 'data'}",
                f"--web.listen-address={host}:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(f"http://{host}:{port}")
        until(found.healthy, "Prometheus")
        yield found
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
