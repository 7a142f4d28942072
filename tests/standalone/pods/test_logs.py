import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.errors import NotFound
from headgate.resources.meta import Key
from headgate.standalone.pods.logs import LogOptions, Logs, begin_log, pod_directory, rotate_logs

KEY = Key("", "Pod", "default", "web")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = pod_directory(tmp_path, KEY, "1234") / "app"
    made.mkdir(parents=True)
    return made


async def text(state: Path, **options) -> str:
    return b"".join([piece async for piece in Logs(state).read(KEY, LogOptions("app", **options))]).decode()


async def test_a_log_read_returns_all_lines_or_the_last_lines_or_the_previous_run(tmp_path, directory):
    begin_log(directory).write_text("first\n")
    begin_log(directory).write_text("a\nb\nc")
    assert await text(tmp_path) == "a\nb\nc"
    assert await text(tmp_path, tail_lines=2) == "b\nc"
    assert await text(tmp_path, tail_lines=0) == ""
    assert await text(tmp_path, previous=True) == "first\n"


async def test_a_log_is_rotated_while_the_process_writes_to_it(tmp_path, directory):
    with begin_log(directory).open("ab", buffering=0) as log:
        log.write(b"old\n" * 100)
        rotate_logs(tmp_path, largest=100)
        log.write(b"new\n")
    assert (directory / "current.log").read_text() == "new\n"
    assert await text(tmp_path, tail_lines=2) == "old\nnew\n"


@contextlib.contextmanager
def coming_and_going_pods(state: Path) -> Iterator[Callable[[], bool]]:
    """Create and remove directories of pods named `web` in threads; yield a function that says whether this has ended."""

    def come_and_go(number: int) -> None:
        pod = pod_directory(state, KEY, str(number))
        for _ in range(100):
            (pod / "app").mkdir(parents=True)
            shutil.rmtree(pod)

    with ThreadPoolExecutor() as threads:
        pods = [threads.submit(come_and_go, number) for number in range(3)]
        yield lambda: all(pod.done() for pod in pods)
        for pod in pods:
            pod.result()


def test_pods_may_be_removed_while_logs_are_rotated(tmp_path):
    with coming_and_going_pods(tmp_path) as have_ended:
        while not have_ended():
            rotate_logs(tmp_path)


def test_earlier_pods_of_the_name_may_be_removed_while_a_log_is_found(tmp_path, directory):
    begin_log(directory).write_text("a\n")
    options = LogOptions("app")
    with coming_and_going_pods(tmp_path) as have_ended:
        while not have_ended():
            with contextlib.suppress(NotFound):  # the log of a pod that is younger
                Logs(tmp_path).read(KEY, options)


@pytest.mark.parametrize("tail", ["gateway", "pods/default_web_1234/_sidecar"])
def test_logs_of_proxies_are_rotated(tmp_path, tail):
    log = tmp_path / tail / "envoy.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\n" * 100)
    rotate_logs(tmp_path, largest=100)
    assert log.read_text() == ""
    assert log.with_name("envoy.log.1").read_text() == "old\n" * 100


async def test_a_followed_log_yields_new_lines_until_the_process_ends(tmp_path, directory):
    log = begin_log(directory)
    log.write_text("a\n")
    (directory / "run.json").touch()
    pieces = Logs(tmp_path).read(KEY, LogOptions("app", follow=True))
    assert await anext(pieces) == b"a\n"
    with log.open("a") as file:
        file.write("b\n")
    (directory / "run.json").unlink()
    assert await asyncio.wait_for(anext(pieces), 60) == b"b\n"
    assert [piece async for piece in pieces] == []


@pytest.mark.parametrize(
    ("key", "container"),
    [
        (KEY, "other"),
        (Key("", "Pod", "default", "none"), "app"),
        (Key("", "Pod", "default", "*"), "app"),
        (KEY, "../app"),
    ],
)
async def test_the_log_of_an_unknown_pod_or_container_is_not_found(tmp_path, directory, key, container):
    begin_log(directory).write_text("a\n")
    with pytest.raises(NotFound):
        [piece async for piece in Logs(tmp_path).read(key, LogOptions(container))]


async def test_the_first_run_has_no_previous_log(tmp_path, directory):
    begin_log(directory).write_text("a\n")
    with pytest.raises(NotFound, match="has not run before"):
        await text(tmp_path, previous=True)
