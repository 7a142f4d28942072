"""Schemas: functions that build them, the published ones, the catalog of all, and the comparison of objects with them."""
