"""Checks of single objects: `schema` compares them with their schema, one file for each kind has the rules beyond it."""
