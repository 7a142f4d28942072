"""Taps (`kubectl traffic tap`): streams of the requests of an object, as they happen."""
