"""From the user's program to a functional ATen graph. Everything else starts from what this folder returns."""

from spyre_fx.capture.trace import capture

__all__ = ["capture"]
