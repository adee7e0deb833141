"""The tests, in the folders of what they test. Shared helpers are imported as ``tests.<folder>.<file>``."""
