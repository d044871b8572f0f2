"""Whose requests have gone over a segment, and how far: so that what only one user has can be removed."""

from __future__ import annotations

MAX_USERS = 64
"""With more users than this a segment counts as the tenant's own, and none of their names is kept."""


class Principals:
    """`reach` maps a user to the number of tokens, from the prompt's first, that this user's requests share with the
    path up to here. `own_reach` is the same for the tenant itself: requests without a user, and too many users."""

    __slots__ = ("own_reach", "reach")

    def __init__(self) -> None:
        self.reach: dict[str, int] = {}
        self.own_reach = 0

    @property
    def num_users(self) -> int | None:
        return None if self.own_reach else len(self.reach)

    @property
    def furthest(self) -> int:
        return max(self.own_reach, *self.reach.values(), 0)

    def add(self, user: str | None, num_tokens: int) -> None:
        if user is None:
            self.own_reach = max(self.own_reach, num_tokens)
            return
        self.reach[user] = max(self.reach.get(user, 0), num_tokens)
        if len(self.reach) > MAX_USERS:
            self.own_reach = self.furthest
            self.reach.clear()

    def covers(self, other: Principals, up_to: int) -> bool:
        """Whether all principals of `other`, which continues at token `up_to`, have come that far here."""
        if self.own_reach >= up_to:
            return True
        return not other.own_reach and all(self.reach.get(user, 0) >= up_to for user in other.reach)
