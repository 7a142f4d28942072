"""Writes statuses and Events of users' objects, from the compiler's report and the proxies' acknowledgments."""
