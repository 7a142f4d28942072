"""The state directory: its lock, and what a start does with files that other users can read."""

import os
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.decoding import admit

from headgate.api.certificate import certificate_in
from headgate.atomic_file import write_private
from headgate.errors import HeadgateError
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.options import MachineOptions
from headgate.standalone.runtime_info import RuntimeInfo, write_runtime_info
from headgate.standalone.state_directory import lock, read_token, restrict_to_owner, state_directory
from headgate.standalone.store.memory import MemoryStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def started(state: Path) -> None:
    async with AsyncExitStack() as stack:
        state_directory(MachineOptions(state=state), stack)
        read_token(state)
        certificate_in(state)


async def test_a_new_state_directory_is_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0)
    try:
        await started(tmp_path / "state")
    finally:
        os.umask(before)
    assert mode(tmp_path / "state") == 0o700
    assert {path.name: mode(path) for path in (tmp_path / "state").iterdir()} == dict.fromkeys(
        ("lock", "token", "api.key", "api.crt"), 0o600
    )
    assert not caplog.messages


async def test_an_open_directory_and_its_files_are_made_private_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    await started(state)
    state.chmod(0o755)
    (state / "objects.sqlite").touch()
    (state / "objects.sqlite").chmod(0o644)
    await started(state)
    assert (mode(state), mode(state / "objects.sqlite")) == (0o700, 0o600)
    assert caplog.messages == [
        f"The state directory {state} was open to other users (mode 0755); its mode is 0700 now.",
        f"{state}/objects.sqlite could be read by other users (mode 0644); its mode is 0600 now.",
    ]
    caplog.clear()
    await started(state)
    assert not caplog.messages


@pytest.mark.parametrize(("name", "what"), [("token", "the API's token"), ("api.key", "the API's private key")])
async def test_a_secret_that_was_readable_by_other_users_is_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, what: str
) -> None:
    state = tmp_path / "state"
    await started(state)
    old = (state / name).read_text()
    (state / name).chmod(0o640)
    await started(state)
    assert (state / name).read_text() != old
    assert mode(state / name) == 0o600
    (message,) = caplog.messages
    assert message.startswith(f"{state}/{name}, {what}, could be read by other users (mode 0640); headgate creates a")
    assert f"Use {state}/kubeconfig" in message


async def test_a_directory_of_state_directories_is_accepted_as_a_state_directory(tmp_path: Path) -> None:
    await started(tmp_path / "states/canary")
    (tmp_path / "states").chmod(0o755)
    await started(tmp_path / "states")
    assert mode(tmp_path / "states") == 0o700


@pytest.mark.parametrize("name", ["letter.txt", "letter.txt/state"])
async def test_an_error_names_a_state_directory_that_can_not_be_created(tmp_path: Path, name: str) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(HeadgateError, match=rf"can't create .*{name}: .*; choose another one with --state"):
        await started(tmp_path / name)


async def test_an_open_directory_with_files_of_other_programs_is_rejected_and_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()
    with pytest.raises(HeadgateError, match=r"has files of other programs; choose another directory"):
        await started(tmp_path)
    assert mode(tmp_path) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to another user")
def test_a_state_directory_of_another_user_is_rejected(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(HeadgateError, match=r"belongs to another user \(uid 12345\)"):
        restrict_to_owner(tmp_path)


def test_the_error_of_a_second_headgate_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    info = RuntimeInfo(
        api="https://127.0.0.1:1",
        kubeconfig="/a b/kubeconfig",
        proxy="127.0.0.1:1",
        probe="/probe",
        admin="/admin",
        pid=4711,
    )
    write_runtime_info(tmp_path, info)
    with (
        lock(tmp_path),
        pytest.raises(HeadgateError, match=r"a headgate \(process 4711\) runs .* --state"),
        lock(tmp_path),
    ):
        pass
    with lock(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"\0" * 43, b"x" * 42, b"x" * 44, "ö".encode() * 22])
async def test_only_a_token_of_headgate_opens_the_api(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    """An empty or short file, as a full disk or a crash leaves it, is replaced."""
    state = tmp_path / "state"
    await started(state)
    write_private(state / "token", content)
    token = read_token(state)
    assert len(token) == 43
    assert token == read_token(state) == (state / "token").read_text()
    (message,) = caplog.messages
    assert message.startswith(f"{state}/token has no token of headgate ({len(content)} byte")
    assert f"Use {state}/kubeconfig" in message


def test_an_api_without_a_token_does_not_start() -> None:
    with pytest.raises(ValueError, match="the token of the API is empty"):
        create_app(MemoryStore(admit=admit), token="").build_middleware_stack()
