"""Texts of users: their rows, from files and the Hub, and tokenizers for them."""
