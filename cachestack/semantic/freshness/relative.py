"""Times that a question names from where it stands: "tomorrow" is another day tomorrow.

An answer to such a question ends with the hour, day, week, month or year in which it was asked, whatever its TTL.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

Period = Literal["hour", "day", "week", "month", "quarter", "year"]

_DAYS = r"mon|tues|wednes|thurs|fri|satur|sun"
_JOURS = r"lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
_MOVED = r"this|next|last|past|previous|coming|the coming|current"
_NUMBER = (
    r"\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|few|couple of"
    r"|une?|deux|trois|quatre|cinq|sept|huit|neuf|dix|quelques"
)


def _moved(english: str, french: str) -> str:
    return (
        rf"(?:{_MOVED}) (?:{english})(?:'?s)?"
        rf"|(?:ce|cet|cette) (?:{french})|(?:{french})s? (?:derniere?|prochaine?|passee?|suivante?|en cours)s?"
        rf"|(?:derniere?|prochaine?)s? (?:{french})s?"
    )


_PATTERNS: tuple[tuple[Period, str], ...] = (
    ("hour", r"this hour|cette heure|tout a l'heure"
             rf"|(?:in|within|dans|d'ici) (?:the next |les )?(?:{_NUMBER}) (?:minutes?|mins?|hours?|heures?)"
             rf"|(?:{_NUMBER}) (?:minutes?|mins?|hours?) ago|il y a (?:{_NUMBER}) (?:minutes?|heures?)"),
    ("day", r"today|to-day|tonight|tomorrow|tmrw|tomorow|yesterday|last night|this (?:morning|afternoon|evening|noon)"
            r"|aujourd'? ?hui|ce (?:soir|matin|midi)|cet(?:te)? (?:apres.midi|nuit|aprem)"
            r"|(?:apres.)?demain|(?:avant.)?hier"
            rf"|(?:in|within|dans|d'ici) (?:the next |les )?(?:{_NUMBER}) (?:days?|weeks?|jours?|semaines?)"
            rf"|(?:{_NUMBER}) (?:days?|weeks?) ago|il y a (?:{_NUMBER}) (?:jours?|semaines?)"
            rf"|(?:on|by|until|till|before|after|{_MOVED}) (?:{_DAYS})day(?!s)|(?<!le )(?<!les )(?:{_JOURS})(?!s)"),
    ("week", _moved("week|weekend|week-end", "semaine|week.?end")),
    ("month", _moved("month", "mois")),
    ("quarter", _moved("quarter", "trimestre")),
    ("year", _moved("year", "annee|an") + r"|year to date|ytd"
             rf"|(?:{_NUMBER}) years? ago|il y a (?:{_NUMBER}) ans?"),
)  # fmt: skip
_COMPILED = tuple((period, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")) for period, pattern in _PATTERNS)
_QUOTED = re.compile(r"\"[^\"]*\"|«[^»]*»|“[^”]*”|(?<!\w)'[^']*'(?!\w)")


def relative_period(text: str) -> tuple[Period, str] | None:
    """The shortest period that folded text names from where it stands, and the words. Not what stands in quotes."""
    bare = _QUOTED.sub(" ", text)
    for period, pattern in _COMPILED:
        match = pattern.search(bare)
        if match is not None:
            return period, match[0]
    return None


def end_of(period: Period, now_s: float, timezone: str) -> float:
    """When the period ends in which `now_s` lies; `now_s` where no calendar has such a time."""
    try:
        zone = _zone(timezone)
        now = datetime.fromtimestamp(now_s, zone)
        if period == "hour":
            return now_s - now.minute * 60 - now.second - now.microsecond / 1e6 + 3600
        return datetime.combine(_first_day_after(period, now), time.min, zone).timestamp()
    except (OverflowError, ValueError, OSError):
        return now_s


def _first_day_after(period: Period, now: datetime) -> datetime:
    day = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    match period:
        case "week":  # begins on Sunday for some, on Monday for others: what comes first ends it
            return day + timedelta(days=1 if day.weekday() == 6 else 6 - day.weekday())
        case "month" | "quarter":
            month = day.month if period == "month" else (day.month - 1) // 3 * 3 + 3
            return datetime(day.year + month // 12, month % 12 + 1, 1)
        case "year":
            return datetime(day.year + 1, 1, 1)
        case _:
            return day + timedelta(days=1)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
