"""Facts about a graph. Nothing in this folder edits one."""
