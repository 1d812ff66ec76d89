"""Doors: ways from the ecosystem to a model, each tried with every architecture, and the table of what they open."""
