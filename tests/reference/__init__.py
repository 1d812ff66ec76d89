"""Naive twins of what the models do cleverly: one row, one token, one step at a time, written from the papers' rules."""
