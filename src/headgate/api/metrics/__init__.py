"""The metrics API: traffic metrics of resources in three API groups."""
