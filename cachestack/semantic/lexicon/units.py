"""Units, currencies and their spellings, in English and French. One unit a line, its name first."""

from __future__ import annotations

from decimal import Decimal
from functools import cache

# Anywhere beside a number.
UNITS = """
second seconds sec secs s seconde secondes
millisecond milliseconds ms milliseconde millisecondes
minute minutes min mins mn
hour hours hr hrs h heure heures
day days d jour jours j
week weeks wk wks semaine semaines
fortnight fortnights quinzaine
month months mo mos mois
year years yr yrs yo an ans année années annee annees
decade decades décennie décennies
century centuries siècle siècles
meter meters metre metres m mètre mètres
kilometer kilometers kilometre kilometres km kms kilomètre kilomètres
centimeter centimeters centimetre centimetres cm cms centimètre centimètres
millimeter millimeters millimetre millimetres mm millimètre millimètres
mile miles mi
foot feet ft pied pieds
inch inches pouce pouces
yard yards yd yds
acre acres
hectare hectares ha
gram grams gramme grammes g gm gms
kilogram kilograms kilogramme kilogrammes kg kgs kilo kilos
milligram milligrams mg milligramme milligrammes
pound pounds lb lbs livre livres
ounce ounces oz once onces
stone stones
ton tons tonne tonnes
liter liters litre litres l
milliliter milliliters millilitre millilitres ml
gallon gallons
cup cups tasse tasses
tablespoon tablespoons tbsp
teaspoon teaspoons tsp
calorie calories cal kcal
celsius c centigrade °c
fahrenheit f °f
kelvin k
degree degrees deg degré degrés °
watt watts w
kilowatt kilowatts kw
kwh
volt volts v
amp amps ampere amperes
hertz hz
megahertz mhz
gigahertz ghz
bit bits
byte bytes b octet octets
kilobyte kilobytes kb ko
megabyte megabytes mb mo
gigabyte gigabytes gb go gig gigs
terabyte terabytes tb
kbps
mbps mbit/s mb/s
gbps gbit/s gb/s
mph
kmh km/h kph
percent % percents pct pourcent pour_cent
usd $ dollar dollars us$ usd$ bucks buck
eur € euro euros
gbp £ pound pounds quid livre livres sterling
inr ₹ rupee rupees rs re roupie roupies
jpy ¥ yen yens
cny yuan rmb
chf franc francs
cad c$ ca$
aud a$ au$
krw ₩
cent cents centime centimes
time times fois
person persons people personne personnes
item items piece pieces pièce pièces
star stars étoile étoiles
user users utilisateur utilisateurs
page pages
word words mot mots
line lines ligne lignes
bedroom bedrooms bhk
"""

# Letters after a number that multiply it.
MAGNITUDES = {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "b": 10**9, "md": 10**9, "mds": 10**9}

_SIGNS = "$ € £ ₹ ¥ ₩ usd eur gbp inr jpy cny chf cad aud krw rs us$ c$ a$ ca$ au$"
_COUNTED = "time person item star user page word line cent"

# Written before the number as well as after it.
SIGNS = frozenset(_SIGNS.split())

COUNTED = frozenset(_COUNTED.split())
"""Units that a year may be followed by without being counted in them."""

# Each unit in terms of another; a month is a twelfth of a year. What is not here is its own dimension.
_CONVERSIONS = """
millisecond 0.001 second
minute 60 second
hour 3600 second
day 86400 second
week 604800 second
fortnight 1209600 second
month 2629800 second
year 31557600 second
decade 315576000 second
century 3155760000 second
kilometer 1000 meter
centimeter 0.01 meter
millimeter 0.001 meter
kilogram 1000 gram
milligram 0.001 gram
ton 1000000 gram
milliliter 0.001 liter
kilowatt 1000 watt
megahertz 1000000 hertz
gigahertz 1000000000 hertz
kilobyte 1000 byte
megabyte 1000000 byte
gigabyte 1000000000 byte
terabyte 1000000000000 byte
mbps 1000 kbps
gbps 1000000 kbps
"""


@cache
def conversions() -> dict[str, tuple[str, Decimal]]:
    """Each unit to the unit that it is counted in, and how many of those it is."""
    rows = (line.split() for line in _CONVERSIONS.strip().splitlines())
    return {unit: (base, Decimal(factor)) for unit, factor, base in rows}


@cache
def units() -> dict[str, frozenset[str]]:
    """Each spelling to the units it can mean."""
    found: dict[str, set[str]] = {}
    for line in UNITS.strip().splitlines():
        name, *_ = spellings = line.split()
        for spelling in spellings:
            found.setdefault(spelling, set()).add(name)
    return {spelling: frozenset(names) for spelling, names in found.items()}
