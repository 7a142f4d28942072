"""Answers queries about the traffic of resources, from the counts of flows and the objects."""
