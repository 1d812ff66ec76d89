"""ListOps with dependency depth: what a value really depends on (Csordás et al., 2022)."""
