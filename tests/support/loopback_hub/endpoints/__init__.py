"""What the server answers, by subject; importing this package fills the table of routes."""

from . import account, download, information, management, upload

__all__ = ["account", "download", "information", "management", "upload"]
