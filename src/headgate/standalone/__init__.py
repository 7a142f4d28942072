"""Runs a mesh on one machine: the embedded API with its store, pods as processes, and Envoys."""
