"""What stands around an answer and says nothing: `Sure!`, `The answer is`, `Bien sûr,`, `I hope this helps.`"""

from __future__ import annotations

import re

_OPENERS = r"""
(?:sure|certainly|of\ course|absolutely|definitely|okay|ok|alright|no\ problem|with\ pleasure
  |happy\ to\ help|glad\ you\ asked
  |thanks\ for\ (?:asking|your\ question|reaching\ out)|thank\ you\ for\ (?:asking|your\ question|reaching\ out)
  |(?:(?:what|that.s)\ an?\ )?(?:great|good|excellent|interesting|lovely)\ question
  |good\ news|unfortunately|(?:i'm|i\ am|we're)\ (?:so\ |very\ )?sorry|sorry
  |malheureusement|(?:je\ suis\ )?désolée?|hélas|bonne\ nouvelle|hello|hi(?:\ there)?|hey
  |bien\ sûr|bien\ sur|certainement|absolument|avec\ (?:grand\ )?plaisir|d'accord|entendu|bonjour|bonsoir|salut
  |merci\ (?:pour|de)\ votre\ (?:question|message)|(?:très\ )?bonne\ question
)(?:\ (?:thing|there))?\ ?[!.,:;]+\ ?
|(?:the\ (?:correct\ |right\ |final\ |short\ )?answer(?:\ to\ (?:your|the|this)\ question)?\ is
  |answer|final\ answer|result|response
  |la\ (?:bonne\ )?réponse(?:\ à\ (?:votre|la|cette)\ question)?\ est|réponse|résultat
)\ ?(?::|(?<=\ is)|(?<=\ est))\ ?(?:that\ |que\ |qu')?
|(?:here(?:'s|\ is|\ are)|voici|voilà|below\ is|ci-dessous)\ [^.:!?\n]{0,80}:\ ?
|(?:in\ short|in\ brief|to\ answer\ your\ question|put\ simply|en\ bref
  |en\ résumé|en\ un\ mot|pour\ répondre\ à\ votre\ question)[,:]\ ?
"""
_CLOSERS = r"""
i\ hope\ (?:this|that|it)\ helps[^.!?]{0,40}
|hope\ (?:this|that|it)\ helps[^.!?]{0,40}
|(?:please\ )?(?:let\ me\ know|feel\ free\ to\ (?:ask|reach\ out)
  |don't\ hesitate\ to\ (?:ask|contact\ me|reach\ out))[^.!?]{0,120}
|(?:if\ you\ have\ any\ (?:other\ |further\ |more\ )?questions?)[^.!?]{0,120}
|is\ there\ anything\ else[^.!?]{0,80}|can\ i\ help\ (?:you\ )?with\ anything\ else[^.!?]{0,40}
|(?:have\ a|enjoy\ your)\ (?:great|nice|good|lovely)?\ ?(?:day|evening|weekend|trip|stay)[^.!?]{0,20}
|(?:you're|you\ are)\ welcome
|j'espère\ que\ (?:cela|ça)\ (?:vous|t')[^.!?]{0,60}
|n'hésite[zs]?\ pas\ (?:à\ me|à\ poser|à\ revenir|si)[^.!?]{0,120}
|(?:y\ a-t-il|avez-vous|as-tu)\ (?:autre\ chose|d'autres\ questions)[^.!?]{0,80}
|puis-je\ vous\ aider[^.!?]{0,80}
|au\ (?:plaisir|bonheur)\ de[^.!?]{0,60}|we're\ always[^.!?]{0,60}
|(?:bonne|belle)\ (?:journée|soirée)[^.!?]{0,20}|bonne\ continuation
  |bon\ (?:voyage|courage)|je\ reste\ à\ votre\ disposition[^.!?]{0,60}
"""
_OPENER = re.compile(_OPENERS, re.VERBOSE | re.IGNORECASE)
_CLOSER = re.compile(rf"(?:{_CLOSERS})[ .!?]*", re.VERBOSE | re.IGNORECASE)
MAX_FRAMES = 4
"""Of openers, one after the other."""


def without_opener(text: str) -> str:
    """The text after its frames, or the text itself where nothing would be left of it."""
    rest = text
    for _ in range(MAX_FRAMES):
        found = _OPENER.match(_straight(rest))
        if found is None:
            break
        rest = rest[found.end() :].lstrip()
    return rest if any(c.isalnum() for c in rest) else text


def is_closer(sentence: str) -> bool:
    """Whether all of a sentence is politeness at the end of an answer."""
    return _CLOSER.fullmatch(_straight(sentence.strip())) is not None


def _straight(text: str) -> str:
    """With plain apostrophes and spaces, each character in its place."""
    return text.replace("’", "'").replace("\u00a0", " ").replace("\u202f", " ")
