"""The control plane: objects in, configurations for proxies out, statuses and answers back. It knows ports, not hosts."""
