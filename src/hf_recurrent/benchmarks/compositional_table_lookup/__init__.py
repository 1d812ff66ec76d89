"""Compositional table lookup: apply functions that are known by heart, one after another (Csordás et al., 2022)."""
