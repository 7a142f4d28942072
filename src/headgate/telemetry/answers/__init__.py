"""Answers about the traffic of resources, out of counts and objects. Pure."""
