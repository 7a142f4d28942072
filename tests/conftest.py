"""What all tests share: the option that writes golden files, and patience on a busy machine."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headgate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; read the diff")
