"""Answers to malformed input, and the verdict on them."""
