"""What happened lately: growth in slots of time, kept for a quarter of an hour and read as windows (R85, R98)."""

from headgate.telemetry.flows import Reading


class Windows:
    """The proxies' own reports, added up; a `flows.Source`."""

    async def read(self, seconds: float) -> Reading:
        """Return what happened in the last `seconds`."""
        raise NotImplementedError(seconds)
