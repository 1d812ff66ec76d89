"""Sums and products modulo 10, nested in brackets (Csordás et al., 2022)."""
