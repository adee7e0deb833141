"""The library's model of ATen: one iteration-space rule per op, a file per op family.

Everything else reads this table and holds no op names of its own.
"""
