"""What the model of admission looks at: the words of an answer, what is left of them without the matter, its shape, and
how it relates to its question. Takes a bounded number of steps: of a long answer the beginning and the end are read.
"""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from math import log2, sqrt

NUM_BUCKETS = 2**15
MAX_HEAD_CHARS, MAX_TAIL_CHARS = 700, 200
MAX_HEAD_TOKENS, MAX_TAIL_TOKENS = 120, 30
MAX_QUESTION_CHARS = 2_000
MAX_JSON_CHARS = 16_384
STEM = 5
"""Letters by which two words are one."""
WORDS_SCALE, SHAPE_SCALE = 6.0, 0.5

_TOKEN = re.compile(r"[^\W\d_]+(?:'(?=[^\W\d_]))?|\d+|\.{2,}|\n+|[^\w\s]|_+")
_SAME = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "`": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u00ab": '"', "\u00bb": '"'}
    | {"\u2026": "...", "\u00a0": " ", "\u202f": " "}
)
_FIRST = frozenset(
    [
        "i",
        "i'",
        "me",
        "my",
        "we",
        "we'",
        "us",
        "our",
        "je",
        "j'",
        "moi",
        "m'",
        "mon",
        "ma",
        "mes",
        "nous",
        "notre",
        "nos",
    ]
)
_SECOND = frozenset(["you", "you'", "your", "yours", "vous", "votre", "vos", "tu", "te", "t'", "ton", "ta", "tes"])
_ITEM = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s", re.MULTILINE)
_ASKED = {
    "label": r"\b(?:label|classif\w+|categor\w+|tag|choose|pick|one of|sentiment|intent|type:|true or false|yes or no|"
    r"oui ou non|vrai ou faux|classe\w*|etiquette|choisi\w*|severity|priority|topic|route|answer with|reponds par|"
    r"level|status)\b|\w+, \w+(?:,? (?:or|ou) \w+)?\s?\?|/",
    "data": r"\b(?:json|yaml|xml|extract|extrai\w+|field|champ|null|empty|missing|vide|key|payload|body|html)\b",
    "code": r"\b(?:code|function|python|sql|regex|script|commande?|bash|java|javascript|snippet|fonction|loop|log line|"
    r"curl|exemple|example)\b",
    "translation": r"\b(?:translat\w*|tradui\w*|traduction|in (?:french|english|spanish|german)|"
    r"en (?:francais|anglais))\b",
    "text": r"\b(?:write|draft|redige\w*|ecri\w*|compose|reply|message|letter|email|lettre|mail|rephrase|reword|"
    r"sentence|phrase|text|template|modele|say|dire|slogan|title|headline|poem|poeme|note|mot)\b",
    "meaning": r"\b(?:means?|meaning|veut dire|signifie|definition|what is|c'est quoi|qu'est-ce|stand for|difference|"
    r"explain|expli\w+|why|pourquoi)\b",
    "questions": r"\b(?:questions?|quiz|ask|demander|interview)\b",
    "error": r"\b(?:error|erreur|exception|http|timeout|crash|bug|logs?|[45]\d\d|fail\w*|echec|echou\w+|quota|"
    r"rate limit|trace\w*|refus\w*|denied|declin\w*|blocked|bloque\w*|sorry|apolog\w*|excus\w*|unavailable|"
    r"indisponible)\b",
    "quoted": r"[\"']\S.*[\"']|: \S",
}
_ASKS = {name: re.compile(pattern) for name, pattern in _ASKED.items()}
"""What a question asks for, by words."""


def fold(text: str) -> str:
    """Lower case, without accents, quotes and apostrophes straight."""
    if text.isascii():
        return text.lower()
    bare = unicodedata.normalize("NFKD", text.translate(_SAME)).lower()
    return "".join(c for c in bare if not unicodedata.combining(c))


@cache
def _talk() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Of words about answering, and about failing."""
    text = files(__package__).joinpath("talk.txt").read_text("utf-8")
    lists = re.split(r"\[\w+\]", text)[1:]
    answering, failing = (re.compile("(?:" + "|".join(one.split()) + ")") for one in lists)
    return answering, failing


@cache
def _small_words() -> frozenset[str]:
    """English and French function words, of the language finder's lists."""
    text = files("cachestack.semantic.lexicon").joinpath("function_words.txt").read_text("utf-8")
    return frozenset(
        fold(word) for line in text.splitlines() if line[:3] in ("en ", "fr ") for word in line.split()[1:]
    )


def talks(word: str) -> bool:
    """A folded word that talks about answering or failing."""
    return any(pattern.match(word) for pattern in _talk())


def asks_for(question: str) -> frozenset[str]:
    folded = fold(question[:MAX_QUESTION_CHARS])
    return frozenset(name for name, pattern in _ASKS.items() if pattern.search(folded))


def features(question: str, answer: str, rules: Sequence[str] = ()) -> dict[int, float]:
    """By bucket. `rules`: names of what the rules found."""
    stripped = answer.strip()
    read = _Read(question, stripped)
    found: dict[int, float] = {}
    for names, scale in (
        (read.words(), WORDS_SCALE),
        (read.skeletons(), WORDS_SCALE),
        (read.characters(), WORDS_SCALE),
    ):
        buckets = {_bucket(name) for name in names}
        value = scale / sqrt(len(buckets)) if buckets else 0.0
        for bucket in buckets:
            found[bucket] = found.get(bucket, 0.0) + value
    shape = dict(read.shares())
    shape.update((name, 1.0) for name in read.shape())
    shape.update((f"rule {name}", 1.0) for name in rules)
    for name, value in shape.items():
        bucket = _bucket(name)
        found[bucket] = found.get(bucket, 0.0) + SHAPE_SCALE * value
    return found


def _bucket(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % NUM_BUCKETS


class _Read:
    def __init__(self, question: str, answer: str) -> None:
        self.answer = answer
        head, tail = answer[:MAX_HEAD_CHARS], answer[-MAX_TAIL_CHARS:] if len(answer) > MAX_HEAD_CHARS else ""
        self.folded = fold(head)
        tokens = _TOKEN.findall(self.folded)
        last = _TOKEN.findall(fold(tail)) if tail else tokens
        self.is_whole = not tail and len(tokens) <= MAX_HEAD_TOKENS
        self.tokens, self.last = tokens, last
        begin = ["<", *map(_plain, tokens[:MAX_HEAD_TOKENS])]
        self.parts = [[*begin, ">"]] if self.is_whole else [begin, [*map(_plain, last[-MAX_TAIL_TOKENS:]), ">"]]
        self.question = fold(question[:MAX_QUESTION_CHARS])
        self.asked = _TOKEN.findall(self.question)
        small = _small_words()
        self.small = small
        self.in_question = {_stem(word) for word in self.asked if len(word) > 2 and word not in small}
        self.kinds: dict[str, str] = {}

    def kind(self, word: str) -> str:
        """`small`, `asked` (stands in the question), `answering`, `failing`, `both`, or `matter`."""
        if (known := self.kinds.get(word)) is not None:
            return known
        answering, failing = _talk()
        if len(word) <= 2 or word in self.small:
            kind = "small"
        elif _stem(word) in self.in_question:
            kind = "asked"
        else:
            said, failed = answering.match(word), failing.match(word)
            kind = "both" if said and failed else "answering" if said else "failing" if failed else "matter"
        self.kinds[word] = kind
        return kind

    def words(self) -> Iterator[str]:
        for part in self.parts:
            for n in (1, 2, 3):
                for at in range(len(part) - n + 1):
                    yield "w" + " ".join(part[at : at + n])
            for word in part:
                if len(word) > 5 and word.isalpha():
                    yield "p" + word[:4]
                    yield "p" + word[:5]

    def skeletons(self) -> Iterator[str]:
        """What stays of the words where those of the matter, and of the question, are blanks."""
        for part in self.parts:
            blanks = [self._blank(word) for word in part]
            kept = [one for at, one in enumerate(blanks) if one != "_" or not at or blanks[at - 1] != "_"]
            for n in (2, 3, 4):
                for at in range(len(kept) - n + 1):
                    yield "s" + " ".join(kept[at : at + n])

    def _blank(self, word: str) -> str:
        if not word[0].isalpha():
            return word
        kind = self.kind(word)
        return word if kind == "small" else "Q" if kind == "asked" else "_" if kind == "matter" else word[:STEM]

    def characters(self) -> Iterator[str]:
        whole = len(self.answer) <= 300
        texts = ["^" + self.folded[:300] + ("$" if whole else "")]
        if not whole:
            texts.append(fold(self.answer[-100:]) + "$")
        for text in texts:
            plain = re.sub(r"\d", "0", re.sub(r"\s+", " ", text))
            for n in (3, 4, 5):
                for at in range(len(plain) - n + 1):
                    yield "c" + plain[at : at + n]

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("words", "told", "asked", "answering", "failing", "both", "matter"), 0)
        for word in self.tokens:
            if word[0].isalpha():
                counts["words"] += 1
                if (kind := self.kind(word)) != "small":
                    counts["told"] += 1
                    counts[kind] += 1
        return counts

    def shares(self) -> Iterator[tuple[str, float]]:
        counts = self._counts()
        if told := counts["told"]:
            for name in ("asked", "answering", "failing", "both", "matter"):
                yield f"share {name}", counts[name] / told
        if words := counts["words"]:
            yield "share first", sum(word in _FIRST for word in self.tokens) / words
            yield "share second", sum(word in _SECOND for word in self.tokens) / words

    def shape(self) -> Iterator[str]:
        counts, answer = self._counts(), self.answer
        length, matter = _size(counts["words"]), _size(counts["matter"])
        meta = _size(counts["answering"] + counts["failing"] + counts["both"])
        yield f"length {length}"
        yield f"asked {_size(counts['asked'])}"
        yield f"matter {matter}"
        yield f"meta {meta}"
        yield f"matter {min(matter, 7)} meta {min(meta, 6)}"
        if told := counts["told"]:
            talk = counts["answering"] + counts["failing"] + counts["both"]
            for name, n in (("meta", talk), ("matter", counts["matter"]), ("asked", counts["asked"])):
                yield f"quarter {name} {int(4 * n / told)}"
        first = sum(word in _FIRST for word in self.tokens)
        yield f"first {min(first, 4)}"
        yield f"second {min(sum(word in _SECOND for word in self.tokens), 4)}"
        numbers = sum(word[0].isdigit() for word in self.tokens)
        yield f"numbers {min(numbers, 3)}"
        yield f"numbers {min(numbers, 1)} matter {min(matter, 6)}"
        yield f"question marks {min(self.folded.count('?'), 3)}"
        yield from self._ends(length)
        yield from self._marks(answer)
        yield from self._relation(length, matter, min(first, 1))

    def _ends(self, length: int) -> Iterator[str]:
        end = self.answer[-1:]
        end = "none" if not end else "word" if end.isalpha() else "digit" if end.isdigit() else end
        sentences = min(len(re.findall(r"[.!?] ", self.folded)), 3)
        yield f"end {end}"
        yield f"end {end} sentences {sentences}"
        yield f"end {end} length {min(length, 8)}"
        if self.last and self.last[-1] in self.small:
            yield "end small"
            yield f"end small sentences {min(sentences, 2)} length {min(length, 7)}"

    def _marks(self, answer: str) -> Iterator[str]:
        head = answer[:3000]
        for one, other in ("()", "[]", "{}"):
            if one in head:
                yield f"has {one}"
                if answer.count(one) > answer.count(other):
                    yield f"open {one}"
        if answer.count('"') % 2:
            yield "open quote"
        if "```" in head:
            yield "fence"
        begin = answer[:1]
        yield "begin " + ("word" if begin.isalpha() else "digit" if begin.isdigit() else begin)
        if begin.islower():
            yield "begin lower"
        if head.isupper():
            yield "upper"
        yield f"lines {min(_size(head.count(chr(10))), 6)}"
        for name, pattern in _FORMS.items():
            if pattern.search(head[:500]):
                yield name
        if begin in ("{", "["):
            yield "json " + _json_kind(answer)

    def _relation(self, length: int, matter: int, first: int) -> Iterator[str]:
        kinds = [name for name, pattern in _ASKS.items() if pattern.search(self.question)]
        begin = "w" if self.answer[:1].isalnum() else self.answer[:1]
        for kind in kinds:
            yield f"for {kind}"
            yield f"for {kind} length {min(length, 8)}"
            yield f"for {kind} matter {min(matter, 4)}"
            yield f"for {kind} first {first}"
            yield f"for {kind} begin {begin}"
        if is_of_question(self.question, self.answer):
            yield "stands in question"
            for kind in kinds:
                yield f"stands in question for {kind}"
        yield f"question {_size(len(self.asked))}"
        if self.question.rstrip().endswith("?"):
            yield "question asks"


_FORMS = {
    "list": _ITEM,
    "html": re.compile(r"\A<\w+"),
    "snake": re.compile(r"\w_\w"),
    "camel": re.compile(r"[a-z][A-Z]"),
}


def is_of_question(question: str, answer: str) -> bool:
    """A short answer stands in the question, as one of its labels does. The question is folded."""
    if len(answer) > 60:
        return False
    bare = fold(answer).strip(" .!\"'`")
    return bool(bare) and re.search(rf"(?<!\w){re.escape(bare)}(?!\w)", question) is not None


def _json_kind(text: str) -> str:
    if len(text) > MAX_JSON_CHARS:
        return "long"
    try:
        return type(json.loads(text)).__name__
    except (ValueError, RecursionError):
        return "broken"


def _plain(token: str) -> str:
    return "#" if token[0].isdigit() else "\n" if token[0] == "\n" else token


def _stem(word: str) -> str:
    return word.rstrip("'")[:STEM]


def _size(number: int) -> int:
    """A number up to 3, then two steps each time it doubles."""
    return number if number <= 3 else 4 + int(log2(number / 4) * 2)
