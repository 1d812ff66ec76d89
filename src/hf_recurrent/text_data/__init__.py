"""Users' own data: rows of files and of the Hub's data sets as examples, and tokenizers for them."""
