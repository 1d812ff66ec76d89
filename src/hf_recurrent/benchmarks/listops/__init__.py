"""ListOps: nested lists of operations on digits (Nangia & Bowman, 2018)."""
