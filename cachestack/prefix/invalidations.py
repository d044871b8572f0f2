"""Which invalidations came after a moment: what was computed for a user before must not be published after."""

from __future__ import annotations

from collections import OrderedDict

from cachestack.keys import digest

_MAX_REMEMBERED = 1024


class Invalidations:
    """Remembers the last ones as digests: no name stays. Where older ones were forgotten, they count as having come
    for everybody."""

    def __init__(self) -> None:
        self.moment = 0
        self._last: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0

    def note(self, tenant: str | None, user: str | None) -> None:
        self.moment += 1
        key = _key(tenant, user)
        self._last[key] = self.moment
        self._last.move_to_end(key)
        if len(self._last) > _MAX_REMEMBERED:
            _, self._forgotten = self._last.popitem(last=False)

    def came_after(self, moment: int, tenant: str, user: str | None) -> bool:
        """Whether one for this tenant, or for this user, came after `moment`."""
        if self._forgotten > moment:
            return True
        keys = [_key(tenant, None)] + ([_key(tenant, user), _key(None, user)] if user is not None else [])
        return any(self._last.get(key, 0) > moment for key in keys)


def _key(tenant: str | None, user: str | None) -> str:
    return digest(*(b"" if name is None else b"=" + name.encode("utf-8", "surrogatepass") for name in (tenant, user)))
