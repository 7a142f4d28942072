"""Incremental ADS: a pure state machine for each stream, and the gRPC server around it."""

import os

# gRPC reads these variables when it is imported. Without them, it logs a warning for each child process and each failed
# handshake.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
