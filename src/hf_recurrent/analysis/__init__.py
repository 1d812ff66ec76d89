"""Statistics of trained models: halting, recurrence over long documents, experts, threshold sweeps and explanations.

Each module goes from a model and its batches to a record, and from the record to a table of plain data that is kept in
a file and shown in a card. Figures of tables live in `plots`, which is imported only by those who draw.
"""
