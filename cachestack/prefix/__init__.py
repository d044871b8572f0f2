"""The prefix layer: have the first tokens of this prompt been through this very model?"""
