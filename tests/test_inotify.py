"""The messages about the limit of inotify instances, with the real limit of a user namespace."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.inotify_limit import limited

from headgate import inotify

PRINT = 'import sys; from headgate import inotify; print(inotify.missing_instances(int(sys.argv[1]), "the node"))'


@pytest.mark.parametrize(("limit", "wanted", "is_missing"), [(2, 2, False), (2, 3, True), (0, 1, True)])
def test_a_program_finds_out_whether_it_can_create_inotify_instances(
    limit: int, wanted: int, *, is_missing: bool
) -> None:
    words = limited(limit, [sys.executable, "-c", PRINT, str(wanted)])
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    message = (
        f"the limit user.max_inotify_instances ({limit}) of inotify instances is reached; "
        "raise it as root on the node: sysctl -w user.max_inotify_instances=1024"
    )
    assert printed == (message if is_missing else "")


def test_the_message_names_the_limit_of_the_machine_and_a_higher_value() -> None:
    current = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    message = inotify.limit_message("this machine")
    assert f"fs.inotify.max_user_instances ({current})" in message
    assert int(message.rpartition("=")[2]) > current


def test_other_errors_of_watchfiles_keep_their_text() -> None:
    assert inotify.message_from_watchfiles(RuntimeError("a broken disk"), "this machine") == "a broken disk"
