"""Compositional Freebase Questions: from questions to SPARQL queries (Keysers et al., 2020)."""
