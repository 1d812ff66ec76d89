"""Parts of docs/ that are written by the code they are about: `python -m doc_parts` writes them anew.

A page has them between two comments, `<!-- fill: KIND ARGUMENTS -->` and `<!-- filled -->`. Tests compare what is
committed with what the code says.
"""
