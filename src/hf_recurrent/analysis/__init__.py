"""Statistics of trained models: halting, recurrence over long documents, experts, threshold sweeps and explanations.

Figures live in modules named `plots`, which are imported only by those who draw.
"""
