"""Rule-made pairs on the corpus's own texts: one small change that makes another question, and changes that make none.

Written near misses teach what people get wrong; these teach that one digit or one word is enough, whatever the text.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

from cachestack.corpus.schema import Question
from cachestack.semantic.lexicon.base import lexicon
from cachestack.training.pairs import Pair

Rule = Callable[[str, str, random.Random], str | None]
"""Text, language, randomness → the changed text, or None where the rule finds nothing to change."""

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)?(?![\w])")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NAME = re.compile(r"(?<=[a-zà-ÿ,] )[A-ZÀ-Ý][a-zà-ÿ]{2,}")
_SIBLINGS: Mapping[str, str] = {
    "en": """
        monday tuesday wednesday thursday friday saturday sunday
        january february march april may june july august september october november december
        red blue green yellow black white orange purple grey brown
        son daughter wife husband mother father brother sister neighbour friend colleague
        spain france germany italy portugal austria australia sweden norway canada brazil india china japan
        euros dollars pounds francs yen
        python java javascript ruby go rust php
        english french german spanish italian dutch
        seconds minutes hours days weeks months years
        kilometres miles metres feet inches centimetres
        today tomorrow yesterday
        morning afternoon evening night
        first second third last
        who when where why
        android iphone windows linux mac
        cat dog horse rabbit
    """,
    "fr": """
        lundi mardi mercredi jeudi vendredi samedi dimanche
        janvier février mars avril mai juin juillet août septembre octobre novembre décembre
        rouge bleu vert jaune noir blanc orange gris marron
        fils fille femme mari mère père frère sœur voisin collègue
        espagne france allemagne italie portugal autriche australie suède norvège canada brésil inde chine
        euros dollars livres francs
        secondes minutes heures jours semaines mois ans
        anglais français allemand espagnol italien
        aujourd'hui demain hier
        matin après-midi soir nuit
        premier deuxième troisième dernier
        qui quand où pourquoi comment
        chat chien cheval lapin
    """,
}
"""Each line: words of one kind, none of which may stand for another."""
_QUALIFIERS: Mapping[str, Sequence[str]] = {
    "en": (
        "for a business account", "without a receipt", "on weekends", "for a minor", "from abroad", "for my neighbour",
        "in Switzerland", "before 2020", "after midnight", "for free", "by phone", "with a different name", "in 2019",
        "for someone else", "without an account", "as of last year", "for two people", "on an older version", "offline",
    ),
    "fr": (
        "pour un compte professionnel", "sans ticket de caisse", "le week-end", "pour un mineur", "depuis l'étranger",
        "pour mon voisin", "en Suisse", "avant 2020", "après minuit", "gratuitement", "par téléphone",
        "sous un autre nom", "en 2019", "pour quelqu'un d'autre", "sans compte", "pour deux personnes", "hors ligne",
    ),
}  # fmt: skip
_POLITE: Mapping[str, Sequence[str]] = {
    "en": (
        "Hi, {}", "{} Thanks!", "Please tell me: {}", "Quick question: {}", "Hello, {}", "{} please", "hey {}",
        "I was wondering, {}", "Can you help me? {}", "{} Thank you in advance.", "so {}", "{} (asking for the record)",
    ),
    "fr": (
        "Bonjour, {}", "{} Merci !", "Petite question : {}", "{} svp", "Salut, {}", "{} Merci d'avance.",
        "Bonsoir, {}", "Je me demandais, {}", "Pouvez-vous m'aider ? {}", "dites-moi, {}",
    ),
}  # fmt: skip
_WRITTEN: Mapping[str, str] = {
    "en": "2 two 3 three 4 four 5 five 6 six 7 seven 8 eight 9 nine 10 ten 12 twelve",
    "fr": "2 deux 3 trois 4 quatre 5 cinq 6 six 7 sept 8 huit 9 neuf 10 dix 12 douze",
}
_SHORT: Mapping[str, Sequence[tuple[str, str]]] = {
    "en": (
        ("do not", "don't"), ("cannot", "can't"), ("is not", "isn't"), ("what is", "what's"), ("i am", "I'm"),
        ("you", "u"), ("please", "pls"), ("account", "acct"), ("how do i", "how can i"), ("how do i", "how to"),
        ("is it possible to", "can I"), ("i would like to", "I want to"), ("need to", "have to"),
    ),
    "fr": (
        ("est-ce que je peux", "puis-je"), ("je ne", "je"), ("comment est-ce que", "comment"),
        ("s'il vous plaît", "svp"),
        ("quelqu'un", "qqn"), ("pour quoi", "pourquoi"), ("il faut", "on doit"), ("je voudrais", "je veux"),
    ),
}  # fmt: skip
_NEGATABLE = re.compile(
    r"\b(can|do|does|is|are|should|will|did|was|were|would|have|has)( (?:i|you|we|it|they|the \w+))\b", re.I
)


def contrasts(questions: Sequence[Question], seed: int, num_different: int = 2, num_same: int = 1) -> Iterator[Pair]:
    """For every question up to so many pairs of each kind, on one of its texts chosen at random."""
    names = sorted({m[0] for q in questions for m in _NAME.finditer(q.text)})

    def other_name(text: str, _: str, rng: random.Random) -> str | None:
        return _replace(_NAME, text, lambda w: rng.choice([n for n in names if n != w] or [w]), rng)

    different = {**_DIFFERENT, "name": other_name}
    for question in questions:
        rng = random.Random(f"{seed} {question.id}")
        texts = (question.text, *question.rewordings)
        for rules, same, wanted in ((different, False, num_different), (_SAME, True, num_same)):
            for name in _in_order(rules, rng):
                text = rng.choice(texts)
                changed = rules[name](text, question.language, rng)
                if not wanted or changed is None or changed == text:
                    continue
                if not same and rng.random() < 0.3:
                    changed = _noise(changed, question.language, rng)
                yield Pair(text, changed, same, question.language, question.id, f"rule {name}")
                wanted -= 1


def _in_order(rules: Mapping[str, Rule], rng: random.Random) -> list[str]:
    """At random; rules that fit every text come last half of the time, or nothing else would be seen."""
    late = _ALWAYS if rng.random() < 0.5 else frozenset()
    return sorted(rng.sample(sorted(rules), k=len(rules)), key=lambda name: name in late)


def _number(text: str, _: str, rng: random.Random) -> str | None:
    def other(number: str) -> str:
        digits = list(number)
        at = rng.choice([i for i, c in enumerate(digits) if c.isdigit()])
        digits[at] = rng.choice([d for d in "123456789" if d != digits[at]])
        return "".join(digits)

    return _replace(_NUMBER, text, other, rng)


def _opposite(text: str, language: str, rng: random.Random) -> str | None:
    table = lexicon(language).opposites
    found = [m for m in _WORD.finditer(text) if m[0].lower() in table]
    if not found:
        return None
    m = rng.choice(found)
    return _put(text, m, rng.choice(sorted(table[m[0].lower()])))


def _sibling(text: str, language: str, rng: random.Random) -> str | None:
    sets = [line.split() for line in _SIBLINGS[language].strip().splitlines()]
    found = [(m, s) for m in re.finditer(r"[^\W\d_]+(?:['-][^\W\d_]+)*", text) for s in sets if m[0].lower() in s]
    if not found:
        return None
    m, siblings = rng.choice(found)
    return _put(text, m, rng.choice([s for s in siblings if s != m[0].lower()]))


def _swap(text: str, language: str, _: random.Random) -> str | None:
    """The two ends of a direction change places."""
    pattern = (
        r"\b(from) ((?:[\w'-]+ ){0,2}[\w'-]+?) (to) ([\w'-]+(?: [\w'-]+)?)"
        if language == "en"
        else r"\b(de|depuis) ((?:[\w'-]+ ){0,2}[\w'-]+?) (à|vers) ([\w'-]+)"
    )
    m = re.search(pattern, text, re.IGNORECASE)
    if m is None or m[2].lower() == m[4].lower():
        return None
    return f"{text[: m.start()]}{m[1]} {m[4]} {m[3]} {m[2]}{text[m.end() :]}"


def _negated(text: str, language: str, rng: random.Random) -> str | None:
    if language == "fr":
        m = re.search(r"\b(puis-je|peut-on|faut-il|dois-je|est-il|est-elle|ai-je|avez-vous|peux-tu)\b", text, re.I)
        if m is not None:
            return f"{text[: m.start()]}ne {m[0].lower()} pas{text[m.end() :]}"
        m = re.search(r"\b(je|on|il|elle|nous) (peux|peut|dois|doit|veux|veut|suis|est|ai|a)\b", text, re.I)
        return None if m is None else f"{text[: m.start()]}{m[1]} ne {m[2]} pas{text[m.end() :]}"
    found = list(_NEGATABLE.finditer(text))
    if not found:
        return None
    m = rng.choice(found)
    return f"{text[: m.end()]} not{text[m.end() :]}"


def _qualified(text: str, language: str, rng: random.Random) -> str | None:
    body = text.rstrip(" ?!.")
    return f"{body} {rng.choice(_QUALIFIERS[language])}{text[len(body) :]}"


def _dated(text: str, language: str, rng: random.Random) -> str | None:
    """As of another year."""
    body, year = text.rstrip(" ?!."), rng.randint(1995, 2026)
    return f"{body} {'as of' if language == 'en' else 'en'} {year}{text[len(body) :]}"


def _noise(text: str, language: str, rng: random.Random) -> str:
    for name in rng.sample(sorted(_SAME), k=2):
        text = _SAME[name](text, language, rng) or text
    return text


def _case(text: str, _: str, rng: random.Random) -> str | None:
    return rng.choice((text.lower(), text.upper() if len(text) < 60 else text.lower(), text.rstrip("?!. ")))


def _polite(text: str, language: str, rng: random.Random) -> str | None:
    frame = rng.choice(_POLITE[language])
    return frame.format(text[0].lower() + text[1:] if frame.startswith("{") is False and text[1:2].islower() else text)


def _typo(text: str, _: str, rng: random.Random) -> str | None:
    found = [m for m in re.finditer(r"[a-zà-ÿ]{6,}", text)]
    if not found:
        return None
    m = rng.choice(found)
    word, at = m[0], rng.randrange(1, len(m[0]) - 2)
    slip = rng.choice(("drop", "double", "turn"))
    if slip == "drop":
        word = word[:at] + word[at + 1 :]
    elif slip == "double":
        word = word[:at] + word[at] + word[at:]
    else:
        word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return text[: m.start()] + word + text[m.end() :]


def _unaccented(text: str, _: str, __: random.Random) -> str | None:
    bare = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return bare if bare != text else None


def _written(text: str, language: str, rng: random.Random) -> str | None:
    words = _WRITTEN[language].split()
    table = dict(zip(words[::2], words[1::2], strict=True))
    return _replace(re.compile(r"(?<![\w.,:/-])(?:[2-9]|10|12)(?![\w.,:/-])"), text, lambda n: table.get(n, n), rng)


def _shortened(text: str, language: str, rng: random.Random) -> str | None:
    found = [(old, new) for old, new in _SHORT[language] if re.search(rf"\b{old}\b", text, re.IGNORECASE)]
    if not found:
        return None
    old, new = rng.choice(found)
    return re.sub(rf"\b{old}\b", new, text, count=1, flags=re.IGNORECASE)


def _put(text: str, m: re.Match[str], word: str) -> str:
    word = word.upper() if m[0].isupper() and len(m[0]) > 1 else word.capitalize() if m[0][0].isupper() else word
    return text[: m.start()] + word + text[m.end() :]


def _replace(pattern: re.Pattern[str], text: str, other: Callable[[str], str], rng: random.Random) -> str | None:
    found = list(pattern.finditer(text))
    if not found:
        return None
    m = rng.choice(found)
    return text[: m.start()] + other(m[0]) + text[m.end() :]


_ALWAYS = frozenset({"qualifier", "date"})
_DIFFERENT: Mapping[str, Rule] = {
    "number": _number,
    "opposite": _opposite,
    "sibling": _sibling,
    "swap": _swap,
    "negation": _negated,
    "qualifier": _qualified,
    "date": _dated,
}
_SAME: Mapping[str, Rule] = {
    "case": _case,
    "polite": _polite,
    "typo": _typo,
    "unaccented": _unaccented,
    "written": _written,
    "shortened": _shortened,
}
