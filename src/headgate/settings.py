"""What the person who runs headgate decides, as one value; nothing reads the environment later."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change what is compiled.

    `lowest_port` is the smallest TCP port that the proxy may bind; ports below it are served to proxy clients only.
    """

    domain: str = "cluster.local"
    lowest_port: int = 0
