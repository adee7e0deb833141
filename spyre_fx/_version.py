"""The version, alone in its file so that packaging reads it without importing torch."""

__version__ = "0.1.0"
