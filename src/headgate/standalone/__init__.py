"""Runs a mesh on one machine: the embedded API and its store, workloads as processes, and their Envoys."""
