"""Numbers, days and negations in the one form that the word lists read: `1 200,5` → `1200.5`, `17 h 30` → `17:30`."""

from __future__ import annotations

import re
from decimal import Decimal

WORKING_DAYS = "workdays"
"""The word for days on which is worked, after a number and alone."""

_RATE = re.compile(r"(?<=\d)( ?)(k|m|g)(?:bit|b)(?:s)?/s(?!\w)|(?<=\d)( ?)km/h(?!\w)")
_EACH = re.compile(r"(?<=\d) an (?=[a-z])")
_CUBIC = re.compile(r"(?<![\d.,])(\d{1,9}(?:[.,]\d{1,6})?) ?m3(?!\w)")
_GROUPED = re.compile(r"(?<!\d )(?<![\d.,])\d{1,3}(?: \d{3})+(?:,\d+)?(?![\d,])")
_POINTED = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){1,6},\d+(?![\d,])|(?<![\d.,])\d{1,3}(?:\.\d{3}){2,6}(?![\d.,])")
_COMMA = re.compile(r"(?<![\d.,])(\d{1,12}),(\d{1,2}|\d{4,12})(?![\d,.]\d|\d)")
_COMMA_MONEY = re.compile(r"(?<![\d.,])(\d{1,12}),(\d{1,2})(?= ?(?:€|%|eur\b|euros?\b|chf\b))")
_HOURS = re.compile(r"(?<![\d.,])(\d{1,2}) ?h ?(\d{2})(?!\w)")
_SCIENTIFIC = re.compile(r"(?<![\w.,])(\d{1,6}(?:[.,]\d{1,12})?)(?: ?[x×·*] ?10 ?\^ ?|e\+?)(\d{1,2})(?![\w.])")
MAX_POWER = 15
_CENTS = re.compile(
    r"(?<![\d.,])(\d{1,9}) ?(euros?|€|dollars?|pounds?|francs?)(?: et | and | )(\d{1,2})"
    r"(?: ?(?:centimes?|cents?|pence|p)(?!\w)|(?=$|[ ,.;](?!\d)))"
)
_DOTTED_HOURS = re.compile(
    r"(?<![\d.,:])(\d{1,2})\.([0-5]\d)(?= ?(?:-|to |à |until ) ?\d{1,2}\.[0-5]\d(?!\d))|"
    r"(?<=[\d]-)(\d{1,2})\.([0-5]\d)(?!\d)"
)
_PART_OF_DAY = re.compile(
    r"(?<![\w.:])(\d{1,2}(?::\d\d)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?: o'clock)?"
    r" (?:in the (morning|afternoon|evening)|at (night))(?!\w)"
)
_SPOKEN_HOURS = "one two three four five six seven eight nine ten eleven twelve"
_SPOKEN = {word: str(n) for n, word in enumerate(_SPOKEN_HOURS.split(), 1)}
_DAY_MONTH = re.compile(r"(?<![\d/.,])(\d{1,2})/(\d{1,2})(?:/(\d{4}))?(?![\d/])")
_MONTH_NAMES = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
_MONTHS = _MONTH_NAMES.split()
_WORKING = re.compile(r"(?:working|business|week)[ -]?days?(?!\w)|jours? ouvr(?:é|able)s?(?!\w)")
_PER_CENT = re.compile(r"(?<!\w)(?:per|pour) cent(?!\w)")
_FRENCH_NUMBER = re.compile(
    r"(?<!\w)(?:quatre-vingts?|soixante|cinquante|quarante|trente|vingt|dix)(?:[- ]et)?-[a-zé-]{2,24}(?!\w)"
)
_UNITS = "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"
_FRENCH = {word: n for n, word in enumerate(_UNITS.split(), 1)} | {"une": 1}
_FRENCH |= {"vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60}
_BARE_POINT = re.compile(r"(?<![\w.,])\.(\d{1,12})(?![\w.])")
_FRENCH_HOUR = re.compile(
    r"(?<![\w.:])(\d{1,2}|une|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze) heures?"
    r" (?:du (matin|soir)|de l'(après-midi))(?!\w)"
)
_ROMAN = re.compile(r"(?<!\w)([ivx]{1,6})(?:e|er|ème|eme|ᵉ)(?= (?:siècle|arrondissement|république))")
_ORDINAL_WORDS = (
    "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth "
    "seventeenth eighteenth nineteenth twentieth"
)
_ORDINALS = {word: f"{n}th" for n, word in enumerate(_ORDINAL_WORDS.split(), 3)}
_FRENCH_ORDINAL_WORDS = (
    "troisième quatrième cinquième sixième septième huitième neuvième dixième onzième douzième treizième quatorzième "
    "quinzième seizième"
)
_ORDINALS |= {word: f"{n}e" for n, word in enumerate(_FRENCH_ORDINAL_WORDS.split(), 3)}
_ORDINALS |= {"dix-septième": "17e", "dix-huitième": "18e", "dix-neuvième": "19e", "vingtième": "20e"}
_ORDINAL = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})(?!\w)")
_PERIODS = re.compile(r"(?<![\w.])([ap])\.\ ?m\.?(?!\w)")
_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<!\w)(?:{left})(?!\w)"), right)
    for left, right in (
        (r"an hour and a half|one and a half hours|one hour and a half", "90 minutes"),
        (r"a year and a half|one and a half years", "18 months"),
        (r"half an hour|a half[- ]hour|half[- ]an[- ]hour", "30 minutes"),
        (r"a quarter of an hour", "15 minutes"),
        (r"three quarters of an hour", "45 minutes"),
        (r"half a year", "6 months"),
        (r"half a day", "12 hours"),
        (r"half a dozen", "6"),
        (r"a dozen", "12"),
        (r"a couple of", "2"),
        (r"a fortnight", "2 weeks"),
        (r"(?<!at )once (?=an? |per |every |each |daily|weekly|monthly)", "1 time "),
        (r"twice", "2 times"),
        (r"thrice", "3 times"),
        (r"noon|midday", "12:00"),
        (r"midnight", "0:00"),
        (r"une heure et demie", "90 minutes"),
        (r"un an et demi", "18 mois"),
        (r"une demi[- ]heure", "30 minutes"),
        (r"un quart d'heure", "15 minutes"),
        (r"trois quarts d'heure", "45 minutes"),
        (r"une demi[- ]journée", "12 heures"),
        (r"une demi[- ]douzaine", "6"),
        (r"une douzaine", "12"),
        (r"une quinzaine", "2 semaines"),
        (r"huit jours", "1 semaine"),
        (r"quinze jours", "2 semaines"),
        (r"un trimestre", "3 mois"),
        (r"un semestre", "6 mois"),
        (r"(?<=à )midi", "12:00"),
        (r"(?<=à )minuit", "0:00"),
    )
)
_PLURAL_DAY = re.compile(
    r"(?<!\w)((?:mon|tues|wednes|thurs|fri|satur|sun)day)s(?!\w)|(?<!\w)((?:lun|mar|mercre|jeu|vendre|same)di|dimanche)s(?!\w)"
)
_NON = re.compile(r"(?<!\w)non[- ](?=[^\W\d_]{3})")
_NONE = re.compile(r"(?<!\w)(aucune?)s(?!\w)")
_HINTS: tuple[str, ...] = (
    " and a half",
    "half",
    "quarter",
    "dozen",
    "couple",
    "fortnight",
    "once",
    "twice",
    "thrice",
    "noon",
    "midday",
)
_HINTS += ("midnight", "demi", "quart", "douzaine", "quinz", "huit jours", "mestre", "midi", "minuit")


def plain_digits(folded: str, language: str | None) -> str:
    """`folded`: a text as `words.fold` gives it. A comma before one, two or four digits is a decimal comma in French,
    where the language is not known, and before a sign for euros or per cent."""
    text = folded
    if any(hint in text for hint in _HINTS):
        for pattern, right in _PHRASES:
            text = pattern.sub(right, text)
    if "days" in text or "dis" in text or "dimanches" in text:
        text = _PLURAL_DAY.sub(lambda m: m[1] or m[2], text)
    if "non" in text:
        text = _NON.sub("not " if language != "fr" else "pas ", text)
    if "aucun" in text:
        text = _NONE.sub(r"\1", text)
    if "day" in text or "jour" in text:
        text = _WORKING.sub(WORKING_DAYS, text)
    if " cent" in text:
        text = _PER_CENT.sub("%", text)
    text = _spoken(text, language)
    if not any(c.isdigit() for c in text):
        return text
    if "." in text:
        text = _BARE_POINT.sub(r"0.\1", text)
    if "10" in text or "e" in text:
        text = _SCIENTIFIC.sub(_plain_power, text)
    if "m3" in text:
        text = _CUBIC.sub(lambda m: f"{Decimal(m[1].replace(',', '.')) * 1000:f} litres", text)
    text = _CENTS.sub(lambda m: f"{m[1]}.{m[3]:0>2} {m[2]}", text)
    if "." in text:
        text = _DOTTED_HOURS.sub(lambda m: f"{m[1] or m[3]}:{m[2] or m[4]}", text)
    if language == "en" and " an " in text:
        text = _EACH.sub(" per ", text)  # the French `an` is a unit
    if "/" in text:
        text = _RATE.sub(lambda m: f" {m[2]}bps" if m[2] else " kmh", text)
    if "millier" in text:
        text = text.replace("milliers de ", "mille ").replace("millier de ", "mille ")
    if "/" in text and language == "fr":
        text = _DAY_MONTH.sub(_french_date, text)
    if "h" in text:
        text = _HOURS.sub(r"\1:\2", text)
    if "." in text:
        text = _PERIODS.sub(r"\1m", text)
        text = _POINTED.sub(lambda m: m[0].replace(".", "").replace(",", "."), text)
    if " " in text:
        text = _GROUPED.sub(lambda m: m[0].replace(" ", "").replace(",", "."), text)
    if "," in text:
        text = (_COMMA_MONEY if language not in ("fr", None) else _COMMA).sub(r"\1.\2", text)
    return text


def _spoken(text: str, language: str | None) -> str:
    if "ième" in text or "th" in text or "third" in text:
        text = _ORDINAL.sub(lambda m: _ORDINALS[m[0]], text)
    if language != "en" and "heure" in text:
        text = _FRENCH_HOUR.sub(lambda m: f"{_FRENCH.get(m[1], m[1])} {'am' if m[2] == 'matin' else 'pm'}", text)
    if language != "en" and ("siècle" in text or "arrond" in text or "républ" in text):
        text = _ROMAN.sub(lambda m: f"{_roman(m[1])}e", text)
    if " the " in text or " at night" in text:
        text = _PART_OF_DAY.sub(lambda m: f"{_SPOKEN.get(m[1], m[1])} {'am' if m[2] == 'morning' else 'pm'}", text)
    if language != "en" and "-" in text:
        text = _FRENCH_NUMBER.sub(_french_number, text)
    return text


def _french_number(found: re.Match[str]) -> str:
    """`dix-huit`, `quatre-vingt-dix-sept`, `vingt-et-un`; what is no number stays."""
    rest, total = found[0].replace("-et-", "-").replace(" et-", "-"), 0
    for eighty in ("quatre-vingts", "quatre-vingt"):
        if rest.startswith(eighty):
            rest, total = rest[len(eighty) :].lstrip("-"), 80
            break
    for word in rest.split("-") if rest else ():
        if word not in _FRENCH:
            return found[0]
        total += _FRENCH[word]
    return str(total)


def _plain_power(found: re.Match[str]) -> str:
    if int(found[2]) > MAX_POWER:
        return found[0]
    value = Decimal(found[1].replace(",", ".")).scaleb(int(found[2]))
    return f"{value:f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def _french_date(found: re.Match[str]) -> str:
    day, month = int(found[1]), int(found[2])
    if not (1 <= day <= 31 and 1 <= month <= 12) or (len(found[2]) < 2 and not found[3]):
        return found[0]
    return f"{day} {_MONTHS[month - 1]} {found[3] or ''}".rstrip()


def _roman(letters: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10}[letter] for letter in letters]
    return sum(-v if after > v else v for v, after in zip(values, [*values[1:], 0], strict=True))
