"""Logical inference as translation: from two sentences to the symbol of the relation between them."""
