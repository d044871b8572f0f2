"""An error budget instead of hope: how many hits by meaning may be wrong, and what keeps it so.

`curve.py` (what the corpus says of scores), `shift.py` (how this traffic differs), `bounds.py` (tests that hold under
repeated looks), `state.py` and `machine.py` (the states and what moves them; pure), `pairs.py` (pairs that were
compared), `keeper.py` (on disk), `budgets.py` (all tenants', at run time). Whether two answers say the same is for
`cachestack.answers` to say, which a stack wires in.
"""
