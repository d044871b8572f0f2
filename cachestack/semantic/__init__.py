"""The semantic layer: has this question, in this contract, for this tenant, been answered?"""
