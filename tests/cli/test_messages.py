"""Messages are collected while the live table fills the terminal, and printed at once otherwise."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.cli.messages import Messages

log = logging.getLogger("headgate.test")


@contextmanager
def logged() -> Iterator[Messages]:
    messages, log.propagate = Messages(print), False
    log.addHandler(messages)
    try:
        yield messages
    finally:
        log.removeHandler(messages)
        log.propagate = True


def test_log_records_are_printed_on_stderr_without_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with logged():
        log.warning("the disk is %s", "full")
    assert capsys.readouterr() == ("", "the disk is full\n")


def test_the_table_collects_messages_and_prints_them_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with logged() as messages:
        with messages.on_screen():
            log.warning("the disk is full")
            messages.show("v1 changed")
            assert capsys.readouterr() == ("", "")
            assert [line.partition(" ")[2] for line in messages.recent] == ["the disk is full", "v1 changed"]
        printed = capsys.readouterr().out.splitlines()
        assert [line.partition(" ")[2] for line in printed] == ["the disk is full", "v1 changed"]
        assert messages.recent == ()
