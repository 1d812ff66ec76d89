"""Logical inference: relations between propositional sentences (Bowman, Manning & Potts, 2015)."""
