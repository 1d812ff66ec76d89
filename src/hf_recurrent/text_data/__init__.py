"""Text of one's own: rows of files, and tokenizers for them."""
