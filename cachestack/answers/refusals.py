"""Whether an answer refuses to answer, or says that it does not know."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cachestack.answers.markdown import Line
from cachestack.answers.reading import Answer
from cachestack.semantic.words import fold

MAX_WORDS = 60
"""A longer text may begin with a refusal and go on to answer."""
_OPENING = r"""
(?:(?:i'm|i\ am|we're|we\ are)?\ ?(?:so\ |very\ |really\ )?(?:sorry|afraid)
  |unfortunately|apologies|my\ apologies|i\ apologi[sz]e
  |as\ an?\ (?:ai|assistant|language\ model|artificial)[^.,!?]{0,60}|i\ understand[^.!?,]{0,80}|thank\ you[^.!?,]{0,60}
  |(?:je\ suis\ |nous\ sommes\ )?(?:vraiment\ )?désolée?s?|malheureusement|je\ regrette|toutes\ mes\ excuses
  |je\ m'excuse|(?:en\ tant\ qu|comme\ je\ suis\ une?\ |étant\ une?\ )[^.,!?]{0,60}|je\ comprends[^.!?,]{0,80}
)[ ,.!:;-]*(?:but\ |mais\ |that\ |que\ )?
"""
_CANNOT = r"""
(?:i|we)\ (?:can't|cannot|can\ not|could\ not|couldn't|won't|will\ not|am\ unable\ to|am\ not\ able\ to|are\ unable\ to
  |am\ not\ allowed\ to|am\ not\ permitted\ to|must\ decline|have\ to\ decline|don't\ feel\ comfortable
  |don't\ have|do\ not\ have|have\ no|don't\ know|do\ not\ know|am\ not\ sure|lack)
|(?:i'm|we're)\ (?:unable\ to|not\ able\ to|not\ allowed\ to
  |not\ sure|not\ comfortable|not\ permitted\ to|not\ qualified)
|(?:there\ is\ no|no)\ information\ (?:is\ )?(?:available|provided|about|on)
|(?:this|that|it)\ is\ (?:outside|beyond)\ (?:my|what\ i)
|(?:je|j')\ ?(?:ne\ |n')(?:peux|puis|suis|dispose|ai|sais|connais|possède|saurais|pourrai|souhaite)\b
|(?:nous|on)\ (?:ne\ |n')(?:pouvons|sommes|disposons|avons|peut)\b
|i(?:'d|\ would)\ (?:rather|prefer)\ not|je\ préfère(?:rais)?\ ne\ pas
|il\ m'est\ impossible|je\ suis\ (?:incapable|dans\ l'impossibilité)|je\ l'ignore|je\ dois\ refuser
"""
_ABOUT = r"""
help|assist|answer|provide|give|offer|recommend|advise|share|discuss|tell|access|comply|fulfil|fulfill
  |disclose|comment|predict
|determine|diagnose|confirm|say|respond|information|knowledge|details|enough|find
  |look\ up|check|browse|know|sure|real-time
|competence|compétence|advice|aborder|talk|speak|parler|sujet|topic
|generate|create|write|engage|support|have\ access|view|see\ your
|aider|répondre|donner|fournir|recommander|conseiller|partager|communiquer|accéder|accès|révéler|discuter|dire|prédire
|déterminer|diagnostiquer|confirmer|informations?|sais|connais|mesure|trouver|vérifier|consulter|écrire|traiter|avis
"""
_REFUSAL = re.compile(rf"(?:{_OPENING})?(?:{_CANNOT})(?P<rest>[^.!?]{{0,160}})", re.VERBOSE)
_WHAT = re.compile(rf"\b(?:{_ABOUT})", re.VERBOSE)
_STOP = re.compile(r"[.;!?:,] ")
_ELSEWHERE = re.compile(
    r"\b(?:(?:not|outside|beyond|hors de|pas de) (?:something i|my|what i|ma|mes) (?:can|competence|knowledge"
    r"|scope|expertise|compétences?|domaine|connaissances?)"
    r"|relève pas de (?:ma|mes|notre) compétences?"
    r"|(?:question|matter) for an? [a-z ]{3,30}; i can't \w+|consult an? \w+ for advice)"
)
_GOES_ON = re.compile(
    r"(?:but|however|instead|mais|cependant|toutefois|en revanche)\b,? "
    r"(?:you can|you could|here|the |it |vous pouvez|voici|les? |la )"
)


def refuses(answer: Answer) -> bool:
    """Only the beginning is looked at, and only of a short answer. `Unfortunately, you cannot cancel` is an answer."""
    if answer.num_words > MAX_WORDS:
        return False
    return any(_refuses(lines, answer.num_words) for lines in (answer.parts.lines, answer.lines))


def _refuses(lines: Sequence[Line], num_words: int) -> bool:
    beginning = fold(" ".join(line.text for line in lines[:3]))[:400]
    found = _REFUSAL.match(beginning)
    if found is None and num_words <= 30:
        found = next((m for m in map(_REFUSAL.match, _STOP.split(beginning)[1:]) if m), None) or _ELSEWHERE.search(
            beginning
        )
        return found is not None and _WHAT.search(found[0]) is not None
    if found is None or not _WHAT.search(found[0]):
        return False
    return not _GOES_ON.search(beginning, found.end("rest") - len(found["rest"]))
