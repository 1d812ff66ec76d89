"""Flip-flop language modelling: remember the last written bit (Liu et al., 2023)."""
