"""Answers with nothing in them: a stand-in for text, or the question said back."""

from __future__ import annotations

import re

from cachestack.semantic.admission.base import Finding
from cachestack.semantic.admission.reading import fold

MAX_LENGTH = 400
MIN_ECHOED = 4
"""Words of a question from which an answer that repeats it is an echo."""

_STAND_IN = re.compile(
    r"(?:\W*|\W*(?:(?:null|undefined|nan|nil|none|void)(?: (?:null|undefined|nan|nil|none|void)){0,8}|#(?:ref|n/a|"
    r"value|div/0|name|error|num)|<\|?(?:endoftext|end|eos|im_end|im_start|/s|s|pad)\|?>|/?inst|todo|tbd|tba|fixme|"
    r"lorem ipsum.*|\[object object\]|loading|thinking|please wait|generating(?: (?:a |the )?(?:response|answer))?|"
    r"processing|"
    r"chargement(?: en cours)?|veuillez patienter|en cours(?: de (?:traitement|génération))?|réflexion en cours|"
    r"vide|empty|none given|n/?a|not applicable|no (?:content|output|response|text|answer)|blank|content filtered|"
    r"(?:response |content |output )?(?:filtered|removed|redacted|blocked|hidden|omitted|truncated)|%s|%d|"
    r"(?:todo|tbd|fixme|xxx)\b.{0,80}|.{0,60}\b(?:à valider|to be (?:completed|written|confirmed|filled|added|done)|"
    r"goes here|will appear here|will go here|s'affichera ici|coming soon|à rédiger|à remplir)\b.{0,60}|"
    r"(?:(?:insert|your|put|enter|add|insérer|insérez) (?:the |your |an? |la |votre )?(?:answer|response|text|"
    r"content|output|reply|réponse|texte|contenu)|"
    r"(?:the |your )?(?:answer|response|text|content|output|reply|réponse|texte|contenu)(?: (?:goes |comes )?here|"
    r" ici| à (?:venir|compléter)| placeholder| coming soon)|placeholder(?: \w+)?)(?: here| ici)?|"
    r"(?:answer|response|réponse) ?: ?|coming soon|à venir|à compléter|test(?:ing)?(?: (?:answer|response|\d+))?|"
    r"sample (?:answer|response|text)|foo|foo ?bar|asdf\w*|xxx+|\.\.\.+)\W*)"
)
_NOTHING = re.compile(
    r"\b(?:null|undefined|nan|nil|none|void|empty|vide|test|todo|placeholder|value|valeur|json|python|javascript|sql|option|label|choose|classif\w*)\b"
)
_TEMPLATE = re.compile(
    r"\W*(?:\{\{[^{}]{0,80}\}\}|<[a-z_ -]{1,60}>|\[(?:insert|your|enter|add|put|answer|response|placeholder|insérer|"
    r"votre|réponse)[^\[\]]{0,80}\]|\$\{[^{}]{0,80}\}|%\w+%)\W*"
)
_TASK_WORDS = ("repeat", "répète", "répétez", "say ", "dis ", "echo", "copy")


def find_placeholder(question: str, answer: str) -> Finding | None:
    """A finding of kind `placeholder`."""
    if len(answer) > MAX_LENGTH:
        return None
    said = fold(answer)
    if (
        _STAND_IN.fullmatch(said)
        and not any(c.isdigit() for c in said)
        and not _says_itself(said)
        and not _NOTHING.search(fold(question))
    ):
        return Finding("placeholder", {"form": "stand_in"})
    if _TEMPLATE.fullmatch(said):
        return Finding("placeholder", {"form": "template"})
    asked = fold(question)
    if len(asked.split()) >= MIN_ECHOED and asked.endswith("?") and said.rstrip(" .!?") == asked.rstrip(" .!?"):
        return Finding("placeholder", {"form": "echo"}) if not asked.startswith(_TASK_WORDS) else None
    return None


def _says_itself(said: str) -> bool:
    """Symbols alone may be an answer: an emoji, a sign of arithmetic."""
    return (
        bool(said)
        and not any(c.isalpha() for c in said)
        and re.fullmatch(r"[.\u2026\s_*?!\u2013\u2014\ufffd/|#-]*", said) is None
    )
