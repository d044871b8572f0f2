"""Answers with nothing in them: a stand-in for text, or the question said back."""

from __future__ import annotations

import re
from collections.abc import Collection

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
_TEMPLATE = re.compile(
    r"\W*(?:\{\{[^{}]{0,80}\}\}|<[a-z_ -]{1,60}>|\[(?:insert|your|enter|add|put|answer|response|placeholder|insérer|"
    r"votre|réponse)[^\[\]]{0,80}\]|\$\{[^{}]{0,80}\}|%\w+%)\W*"
)
_TASK_WORDS = ("repeat", "répète", "répétez", "say ", "dis ", "echo", "copy")
_MAY_BE_ASKED = frozenset({"label", "data", "code", "text", "translation", "quoted"})
"""What a question may ask for that a stand-in answers: `null`, `N/A`, `{{name}}`."""


def find_placeholder(question: str, asked_for: Collection[str], answer: str) -> tuple[Finding | None, bool]:
    """A finding of kind `placeholder`, and whether it is certain. `asked_for`: what the question asks for
    (features.py)."""
    if len(answer) > MAX_LENGTH:
        return None, False
    said, asked = fold(answer), fold(question)
    if len(asked.split()) >= MIN_ECHOED and asked.endswith("?") and said.rstrip(" .!?") == asked.rstrip(" .!?"):
        is_meant = asked.startswith(_TASK_WORDS)
        return (None, False) if is_meant else (Finding("placeholder", {"form": "echo"}), True)
    is_sure = _MAY_BE_ASKED.isdisjoint(asked_for) or not any(c.isalnum() for c in said)
    if _TEMPLATE.fullmatch(said):
        return Finding("placeholder", {"form": "template"}), is_sure
    if _STAND_IN.fullmatch(said) and not any(c.isdigit() for c in said) and not _says_itself(said):
        return Finding("placeholder", {"form": "stand_in"}), is_sure
    return None, False


def _says_itself(said: str) -> bool:
    """Symbols alone may be an answer: an emoji, a sign of arithmetic."""
    return (
        bool(said)
        and not any(c.isalpha() for c in said)
        and re.fullmatch(r"[.\u2026\s_*?!\u2013\u2014\ufffd/|#-]*", said) is None
    )
