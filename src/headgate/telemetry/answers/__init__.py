"""Queries about the traffic of resources, answered from counts of flows and objects. Pure."""
