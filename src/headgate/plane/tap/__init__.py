"""Taps (`kubectl traffic tap`): live streams of the requests that concern an object."""
