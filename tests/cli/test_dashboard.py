"""`headgate dashboard` with the page that a headgate of this machine already serves."""

import http.client
import json
import os
import signal
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.ports import free_port
from tests.processes import SECONDS, Ran

from headgate.atomic_file import write_private
from headgate.dashboard.local import FILE_NAME, Address
from headgate.standalone.runtime_info import RuntimeInfo, write_runtime_info

URL = Address("127.0.0.1:8000", "a" * 43).url()


@pytest.fixture(autouse=True)
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that a browser opens, while a headgate with a dashboard runs with the state directory `.headgate`."""
    state, server = tmp_path / ".headgate", "http://127.0.0.1:1"
    state.mkdir()
    config = state / "kubeconfig"
    context = {"name": "headgate", "context": {"cluster": "headgate"}}
    cluster = {"name": "headgate", "cluster": {"server": server}}
    config.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "headgate"}))
    info = RuntimeInfo(api=server, kubeconfig=str(config), proxy="", probe="", admin="", pid=os.getpid())
    write_runtime_info(state, info)
    write_private(state / FILE_NAME, URL.encode())
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: urls.append(url) or True)
    return urls


def test_the_page_of_the_running_headgate_opens_in_the_browser(run: Callable[..., Ran], opened: list[str]) -> None:
    assert run("dashboard") == (0, f"{URL}\n", "")
    assert opened == [URL]


def test_the_url_is_printed_without_a_browser(run: Callable[..., Ran], opened: list[str]) -> None:
    assert run("dashboard", "--no-browser") == (0, f"{URL}\n", "")
    assert opened == []


def test_the_page_begins_with_the_given_namespace(run: Callable[..., Ran], opened: list[str]) -> None:
    assert run("dashboard", "-n", "shop").out == f"{URL}#/?namespace=shop\n"
    assert opened == [f"{URL}#/?namespace=shop"]


def test_a_machine_without_a_browser_is_no_error(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _url: False)
    assert run("dashboard") == (0, f"{URL}\n", "No browser opened; open the URL yourself.\n")


def test_a_browser_in_the_foreground_gets_the_page_of_the_command_that_opens_it(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Browsers of a terminal, and those of $BROWSER, end before webbrowser.open returns."""
    statuses: list[int] = []

    def browse(url: str) -> bool:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
        try:
            connection.request("GET", f"/?{parts.query}")
            statuses.append(connection.getresponse().status)
        finally:
            connection.close()
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C, which ends the command
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    done = run("dashboard", "--port", str(free_port()))
    assert (done.code, done.err) == (0, "Press Ctrl-C to stop.\n")
    assert statuses == [303]
