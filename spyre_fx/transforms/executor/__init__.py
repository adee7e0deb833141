"""How a ``CountedLoop`` runs on plain tensors. Nothing in this folder edits a graph that a user holds.

Once per loop, from its bodies (``plan``):
    1. ``accumulate``: products that are added to a running value are computed straight into it;
    2. ``liveness`` and ``placement``: each value is written to its destination, to a place in a scratch block, or (if
       its op cannot write into given memory, see ``out_forms``) to a fresh tensor; ``windows`` says where tiles of
       tiles lie;
    3. ``storage``: the places in the scratch block, recycled as values die;
    4. ``schedule`` and ``codegen``: one Python function per body, and for attention under a mask a second one for some
       of the columns (``columns``, ``bounds``).
Once per call (``run``): allocate the results and the scratch block, then call that function for each trip on the views
that ``slices`` gives, without the columns that its part of the mask rules out (``spans``).
"""
