"""Each guard on sentences of its kind, English and French; and rewordings that no guard may stop."""

from __future__ import annotations

import pytest

from cachestack.semantic import guards
from cachestack.semantic.guards import Guard, first_rejection, judge
from cachestack.semantic.text import analyse

TRAPS: list[tuple[Guard, str, str, str]] = [
    # negation and polarity
    (guards.negation, "en", "Which plants need sun?", "Which plants do not need sun?"),
    (guards.negation, "en", "Why does the printer start?", "Why doesn't the printer start?"),
    (guards.negation, "en", "Can the field be nullable?", "Can the field be non-nullable?"),
    (guards.negation, "en", "Is the contract valid?", "Is the contract invalid?"),
    (guards.negation, "en", "Files that can be shared", "Files that cannot be shared"),
    (guards.negation, "fr", "Pourquoi l'imprimante démarre ?", "Pourquoi l'imprimante ne démarre pas ?"),
    (guards.negation, "fr", "Mon code marche", "Mon code ne marche plus"),
    (guards.negation, "fr", "J'ai des frais", "Je n'ai aucun frais"),
    # opposites
    (guards.opposites, "en", "How do I enable roaming?", "How do I disable roaming?"),
    (guards.opposites, "en", "How do I turn on the heater?", "How do I turn off the heater?"),
    (guards.opposites, "en", "Where can I buy bonds?", "Where can I sell bonds?"),
    (guards.opposites, "en", "Should I eat before swimming?", "Should I eat after swimming?"),
    (guards.opposites, "en", "How to increase the font size", "How to decrease the font size"),
    (guards.opposites, "en", "How do I log in?", "How do I log out?"),
    (guards.opposites, "fr", "Comment activer l'itinérance ?", "Comment désactiver l'itinérance ?"),
    (guards.opposites, "fr", "Où acheter des obligations ?", "Où vendre des obligations ?"),
    (guards.opposites, "fr", "Que faire avant l'examen ?", "Que faire après l'examen ?"),
    (guards.opposites, "fr", "Payer avec carte", "Payer sans carte"),
    # numbers, units, currencies
    (guards.numbers, "en", "How long to boil 3 eggs?", "How long to boil 5 eggs?"),
    (guards.numbers, "en", "Set a timer for 30 min", "Set a timer for 30 h"),
    (guards.numbers, "en", "What is 15% of $40?", "What is 50% of $40?"),
    (guards.numbers, "en", "What is $40 in yen?", "What is €40 in yen?"),
    (guards.numbers, "en", "Can I withdraw 1,000 dollars?", "Can I withdraw 100 dollars?"),
    (guards.numbers, "en", "Can two people share?", "Can three people share?"),
    (guards.numbers, "fr", "Peut-on retirer 1 000 € ?", "Peut-on retirer 100 € ?"),
    (guards.numbers, "fr", "Cuire vingt minutes", "Cuire trente minutes"),
    (guards.numbers, "fr", "Un retard de 2 jours", "Un retard de 2 semaines"),
    # dates and times
    (guards.dates, "en", "What is on today?", "What is on tomorrow?"),
    (guards.dates, "en", "Flights on Monday", "Flights on Friday"),
    (guards.dates, "en", "Rates as of 2015", "Rates as of 2019"),
    (guards.dates, "en", "Is the bank open on March 3?", "Is the bank open on May 3?"),
    (guards.dates, "en", "Sales last week", "Sales next week"),
    (guards.dates, "en", "Wake me at 7am", "Wake me at 7pm"),
    (guards.dates, "en", "Who is the mayor?", "Who was the mayor?"),
    (guards.dates, "en", "Who is the mayor?", "Who was the mayor in 1999?"),
    (guards.dates, "fr", "Quel temps aujourd'hui ?", "Quel temps demain ?"),
    (guards.dates, "fr", "Vols du lundi", "Vols du vendredi"),
    (guards.dates, "fr", "Ventes de la semaine dernière", "Ventes de la semaine prochaine"),
    (guards.dates, "fr", "La réunion du 3 mars", "La réunion du 3 mai"),
    # identifiers, versions, quotations, code
    (guards.identifiers, "en", "Is KB-2291 fixed?", "Is KB-2292 fixed?"),
    (guards.identifiers, "en", "What is new in v2.1?", "What is new in v2.2?"),
    (guards.identifiers, "en", "Is C++ fast?", "Is C# fast?"),
    (guards.identifiers, "en", "What does => do?", "What does -> do?"),
    (guards.quotations, "en", 'Translate "good night"', 'Translate "good day"'),
    (guards.quotations, "en", "What does `ls -a` do?", "What does `ls -l` do?"),
    # scope, modality, pointing
    (guards.scope, "en", "Delete the drafts", "Delete all the drafts"),
    (guards.scope, "en", "Do admins see it?", "Do only admins see it?"),
    (guards.scope, "en", "Deploy the service", "Deploy the service without downtime"),
    (guards.scope, "en", "Who was the first king?", "Who was the last king?"),
    (guards.scope, "fr", "Supprimer les brouillons", "Supprimer tous les brouillons"),
    (guards.scope, "fr", "Ouvert au public", "Ouvert au public sauf le dimanche"),
    (guards.modality, "en", "What can a tenant do?", "What should a tenant do?"),
    (guards.pointing, "en", "What is the name of the bird?", "What is the name of this bird?"),
    # roles and direction
    (guards.order, "en", "Convert miles to km", "Convert km to miles"),
    (guards.order, "en", "Trains from Leeds to York", "Trains from York to Leeds"),
    (guards.order, "en", "Is rice healthier than bread?", "Is bread healthier than rice?"),
    (guards.order, "en", "Did Anna sue Bert?", "Did Bert sue Anna?"),
    (guards.order, "en", "10am CET in EST", "10am EST in CET"),
    (guards.order, "en", "The cat was bitten by the dog", "The dog was bitten by the cat"),
    (guards.order, "en", "A red car and a blue bus", "A blue car and a red bus"),
    (guards.order, "fr", "Convertir des euros en francs", "Convertir des francs en euros"),
    (guards.order, "fr", "Train de Lille à Nantes", "Train de Nantes à Lille"),
    (guards.order, "fr", "Le riz est-il meilleur que le pain ?", "Le pain est-il meilleur que le riz ?"),
    # the asked slot
    (guards.slot, "en", "When is the fair?", "Where is the fair?"),
    (guards.slot, "en", "How does the valve work?", "Why does the valve work?"),
    (guards.slot, "en", "Does the valve work?", "How does the valve work?"),
    (guards.slot, "en", "How do I renew a visa?", "How much do I pay to renew a visa?"),
    (guards.slot, "fr", "Quand a lieu la foire ?", "Où a lieu la foire ?"),
    (guards.slot, "fr", "Pourquoi renouveler un visa ?", "Comment renouveler un visa ?"),
    # person
    (guards.person, "en", "Where is my seat?", "Where is your seat?"),
    (guards.person, "en", "What is his email?", "What is her email?"),
    (guards.person, "en", "How do I store data?", "How do you store data?"),
    (guards.person, "en", "Do I owe you money?", "Do you owe me money?"),
    (guards.person, "fr", "Ai-je droit à une aide ?", "A-t-il droit à une aide ?"),
    (guards.person, "fr", "Où est mon siège ?", "Où est votre siège ?"),
    # names and other content
    (guards.content, "en", "Opening hours in Leeds", "Opening hours in York"),
    (guards.content, "en", "How do I peel a mango?", "How do I freeze a mango?"),
    (guards.content, "en", "Close my account", "Close my son's account"),
    (guards.content, "en", "Call Mary", "Call Mark"),
    (guards.content, "en", "The difference between has and had", "The difference between is and was"),
    (guards.content, "en", "Is it who or whom?", "Is it they or them?"),
    (guards.content, "fr", "Horaires à Lille", "Horaires à Nantes"),
    (guards.content, "fr", "Fermer mon compte", "Fermer le compte de mon fils"),
    (guards.weak, "en", "What is felt?", "What is felt made of?"),
]

SAME: list[tuple[str, str, str]] = [
    ("en", "How do I renew my visa?", "hi, could you please tell me how to renew my visa? thanks!"),
    ("en", "How do I renew my visa?", "What is the best way to renew my visa?"),
    ("en", "How can I renew my visa?", "What are the steps to renew a visa?"),
    ("en", "how to peel a mango", "How do I peel mangoes?"),
    ("en", "What's the capital of Chad?", "what is the capital of chad"),
    ("en", "capital of Chad", "What is the capital of Chad?"),
    ("en", "What is two plus 3?", "What is 2 plus three?"),
    ("en", "Can I withdraw 1,000 USD?", "Can I withdraw $1000?"),
    ("en", "A loan of 20% for 3 years", "A loan of 20 percent for three years"),
    ("en", "Is the bank open on 3 March 2021?", "Is the bank open on March 3, 2021?"),
    ("en", "Is the bank open on 2021-03-03?", "Is the bank open on 3rd March 2021?"),
    ("en", "Wake me at 7pm", "Wake me at 19:00"),
    ("en", "Which is the best film of all time?", "What is the best movie?"),
    ("en", "In Perl, how do I sort a list?", "How do I sort a list in Perl?"),
    ("en", "The difference between jam and jelly", "the differences between jelly and jam"),
    ("en", "How does jam differ from jelly?", "What is the difference between jam and jelly?"),
    ("en", "The cat was chased by the dog", "The dog chased the cat"),
    ("en", "Where do I purchase a ticket?", "Where do I buy a ticket?"),
    ("en", "What are the symptoms of anaemia?", "what are the symtoms of anaemia"),
    ("en", "Why is the non-profit closed?", "Why is the nonprofit closed?"),
    ("en", "Is the wi-fi free?", "is the wifi free ?"),
    ("en", "How much does a permit cost?", "What is the price of a permit?"),
    ("en", "How do I log into the portal?", "How do I sign in to the portal?"),
    ("en", "Turn the alarm on", "turn on the alarm"),
    ("en", "The price of tea", "tea price"),
    ("en", "Who wrote “Emma”?", 'who wrote "Emma" ?'),
    ("fr", "Comment renouveler mon visa ?", "bonjour, comment puis-je renouveler mon visa svp ? merci"),
    ("fr", "Comment renouveler mon visa ?", "Quelles sont les démarches pour renouveler mon visa ?"),
    ("fr", "Où est mon colis ?", "ou est mon colis"),
    ("fr", "Mot de passe oublié", "mdp oublie"),
    ("fr", "Puis-je payer en liquide ?", "Est-ce que je peux payer en liquide ?"),
    ("fr", "Combien coûte un permis ?", "Quel est le prix d'un permis ?"),
    ("fr", "Qu'est-ce qu'un permis ?", "C'est quoi un permis ?"),
    ("fr", "Retirer 1 000,50 €", "retirer 1000,50 euros"),
    ("fr", "La réunion du 13 mars 2021", "la reunion du 13/03/2021"),
    ("fr", "Attendre quatre-vingt-dix minutes", "attendre 90 min"),
    ("fr", "La différence entre miel et sucre", "les différences entre sucre et miel"),
    ("fr", "Pourquoi ma carte est-elle refusée ?", "Pourquoi est-ce que ma carte est refusée ?"),
]


@pytest.mark.parametrize(("guard", "language", "cached", "asked"), TRAPS, ids=lambda value: str(value)[:40])
def test_the_guard_rejects_either_way_round(guard: Guard, language: str, cached: str, asked: str) -> None:
    one, other = analyse(cached, language), analyse(asked, language)
    for verdict in (guard(one, other), guard(other, one)):
        assert not verdict.passed
        assert verdict.evidence["cached"] != verdict.evidence["asked"]


@pytest.mark.parametrize(("language", "cached", "asked"), SAME)
def test_a_rewording_passes_every_guard(language: str, cached: str, asked: str) -> None:
    one, other = analyse(cached, language), analyse(asked, language)
    assert [v for v in judge(one, other) if not v.passed] == []
    assert first_rejection(other, one) is None


def test_two_languages_do_not_serve_each_other() -> None:
    assert not guards.languages(analyse("Paris", "en"), analyse("Paris", "fr")).passed
    assert guards.languages(analyse("Paris", "en"), analyse("Paris", None)).passed


def test_certain_means_that_the_difference_settles_it() -> None:
    said = guards.numbers(analyse("3 eggs", "en"), analyse("5 eggs", "en"))
    left_out = guards.numbers(analyse("3 eggs", "en"), analyse("eggs", "en"))
    assert (said.passed, said.certain) == (False, True)
    assert (left_out.passed, left_out.certain) == (False, False)


def test_a_guard_that_fails_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cached: object, asked: object) -> guards.Verdict:
        raise RuntimeError("broken")

    monkeypatch.setattr(guards, "GUARDS", (broken,))
    text = analyse("anything", "en")
    verdict = first_rejection(text, text)
    assert verdict is not None
    assert not verdict.passed
    assert "broken" in verdict.evidence["error"]
