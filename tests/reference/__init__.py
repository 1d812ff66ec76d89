"""Naive twins of what the models do cleverly: one row, one token, one step at a time, from the papers' rules."""
