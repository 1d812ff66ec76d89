"""Naive twins of the models: one sequence, one token, one step at a time, from the papers' rules."""
