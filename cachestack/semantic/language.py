"""Which language a short question is in: small words, scripts, and where those are silent word frequencies.

It is asked for every question before anything is matched by meaning, so it prefers to say nothing (None) over a guess.
None means that a text is too short or too mixed to tell: `wifi?`, `error 404`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

from cachestack.decisions import Reason
from cachestack.policy import SemanticPolicy
from cachestack.semantic.lexicon.base import GUARDED_LANGUAGES
from cachestack.semantic.words import counted_in, fold, unaccented

MAX_CHARACTERS = 600
"""Only the beginning of a long text is read: it is enough."""

_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_CODE = re.compile(r"```.*?```|`[^`]*`|https?://\S+", re.DOTALL)
# Letters that one language, or a few, use. Each counts as much as a small word that is shared as widely.
_LETTERS = {
    "fr": "éèêëàâçùûîïôœ",
    "es": "ñ¿¡áíóúé",
    "pt": "ãõçáâêéíóúà",
    "it": "àèìòùé",
    "de": "äöüß",
    "sv": "åäö",
    "da": "åæø",
    "no": "åæø",
    "pl": "ąćęłńśźżó",
    "tr": "ğışçöü",
    "ro": "ășțâî",
    "cs": "ěščřžýáíéůú",
    "fi": "äö",
    "hu": "őűáéíóöüú",
    "ca": "çàèéíòóúï",
    "hr": "čćđšž",
}
_SCRIPTS = (
    ("ja", "\u3040", "\u30ff"),
    ("ko", "\uac00", "\ud7af"),
    ("ko", "\u1100", "\u11ff"),
    ("zh", "\u3400", "\u9fff"),
    ("ar", "\u0600", "\u06ff"),
    ("he", "\u0590", "\u05ff"),
    ("ru", "\u0400", "\u04ff"),
    ("el", "\u0370", "\u03ff"),
    ("hi", "\u0900", "\u097f"),
    ("bn", "\u0980", "\u09ff"),
    ("ta", "\u0b80", "\u0bff"),
    ("th", "\u0e00", "\u0e7f"),
    ("ka", "\u10a0", "\u10ff"),
    ("hy", "\u0530", "\u058f"),
)


@cache
def _small_words() -> Mapping[str, Mapping[str, float]]:
    """Each small word to the languages that have it, and what it says for each: less the more there are."""
    owners: dict[str, set[str]] = {}
    text = files("cachestack.semantic.lexicon").joinpath("function_words.txt").read_text("utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            language, *words = line.split()
            for word in words:
                owners.setdefault(word, set()).add(language)
    return {word: dict.fromkeys(languages, 1 / len(languages)) for word, languages in owners.items()}


def identify(text: str) -> str | None:
    """ISO 639-1 code of the language of `text`, or None where it cannot be told."""
    return _identify(text[:MAX_CHARACTERS])


@lru_cache(maxsize=4096)
def _identify(text: str) -> str | None:
    folded = fold(_CODE.sub(" ", text))
    letters = [c for c in folded if c.isalpha()]
    if not letters:
        return None
    script = _script(letters)
    if script is not None:
        return script
    words = [word.removesuffix("'s") for word in _WORD.findall(folded)]
    scores = _scores(words, folded)
    best = max(scores, key=lambda language: scores[language], default="en")
    high = scores[best]
    low = max((score for language, score in scores.items() if language != best), default=0.0)
    believable = _believable(best, words, scores)
    if high >= 1.5 and high >= 1.8 * low and believable:
        return best
    guess = _by_frequency(words, scores)
    if guess is None and high >= 0.9 and high >= 1.4 * low and believable:
        return best
    return guess


def _script(letters: list[str]) -> str | None:
    """The language of a script that is not Latin, where at least a third of the letters are in it."""
    counts: Counter[str] = Counter()
    for c in letters:
        if c > "\u0370":
            counts.update(language for language, first, last in _SCRIPTS if first <= c <= last)
    if not counts:
        return None
    if counts["ja"]:
        counts["ja"] += counts.pop("zh", 0)
    language, number = counts.most_common(1)[0]
    return language if 3 * number >= len(letters) else None


def _scores(words: list[str], folded: str) -> dict[str, float]:
    scores: dict[str, float] = defaultdict(float)
    table = _small_words()
    for word in words:
        parts = [word] if word in table else re.split(r"['-]", word)
        for part in parts:
            for language, weight in table.get(part, {}).items():
                scores[language] += weight
        if "'" in word and word.split("'")[0] in ("l", "d", "j", "qu", "n", "c", "s", "m", "t", "jusqu", "lorsqu"):
            scores["fr"] += 0.6
            if word.split("'")[0] in ("l", "d", "c"):
                scores["it"] += 0.3
                scores["ca"] += 0.3
    accents = {c for c in folded if not c.isascii() and (c.isalpha() or c in "¿¡")}
    for letter in accents:
        owners = [language for language, own in _LETTERS.items() if letter in own]
        for language in owners:
            scores[language] += 0.8 / len(owners)
    return scores


def _believable(language: str, words: list[str], scores: dict[str, float]) -> bool:
    """English has no accents of its own, and most of its words are known words."""
    if language != "en" or scores["en"] >= 2.5:
        return True
    foreign = sum(1 for w in words if not unaccented(w).isascii() or w != unaccented(w))
    return foreign * 4 <= len(words)


def _by_frequency(words: list[str], scores: dict[str, float]) -> str | None:
    """English or French by how common the words are in each; None where neither knows most of them, or the small
    words speak for a third language."""
    balance, counted = 0.0, 0
    known = {"en": 0, "fr": 0}
    for word in words:
        for part in re.split(r"['-]", word):
            if len(part) < 3:
                continue
            counted += 1
            english, french = counted_in(part, "en"), counted_in(part, "fr")
            known["en"] += english >= 100
            known["fr"] += french >= 100
            # The English collection is about half as large again.
            balance += math.log((english + 10) / (french + 10) / 1.5)
    if not counted:
        return None
    balance += 2 * (scores["en"] - scores["fr"])
    guess = "en" if balance > 0 else "fr"
    third = max((score for language, score in scores.items() if language not in GUARDED_LANGUAGES), default=0.0)
    share = known[guess] / counted
    # French may be said on less: taken for English it would be matched by an encoder that cannot read it.
    enough, most = (3.0, 0.6) if guess == "en" else (1.0, 0.5)
    if abs(balance) < enough or share < most or (third > scores[guess] + 0.6 and share < 0.9):
        return None
    return guess


def by_meaning_refusal(
    text_language: str | None, encoder_languages: frozenset[str], policy: SemanticPolicy
) -> Reason | None:
    """Why a text of this language is not matched by meaning, or None if it may be.

    A language that could not be told passes: such texts are a few words long, and the guards still compare every
    word of them. A language without guards follows `policy.unguarded_languages`, also where the policy names it.
    """
    if text_language is None:
        return None
    if policy.languages == "encoder":
        if encoder_languages and text_language not in encoder_languages:
            return Reason.ENCODER_LANGUAGE
    elif policy.languages != "any" and text_language not in policy.languages:
        return Reason.ENCODER_LANGUAGE
    if text_language not in GUARDED_LANGUAGES and policy.unguarded_languages == "exact_only":
        return Reason.EXACT_ONLY
    return None
