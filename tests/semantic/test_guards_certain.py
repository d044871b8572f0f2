"""What each guard must be certain of, and what it must not: a certain verdict keeps an answer from being served."""

from __future__ import annotations

import pytest

from cachestack.semantic import guards
from cachestack.semantic.guards import Guard, first_veto, judge
from cachestack.semantic.text import analyse

# One sentence, and what takes turns in it: `this|that`, pairs parted by semicolons.
FRAMED: list[tuple[Guard, str, str, str]] = [
    (
        guards.numbers,
        "en",
        "Can I pay {} for the delivery today?",
        "10 dollars|20 dollars; $5|$50; two euros|three euros; £1,000|£100;"
        " 3%|5%; 4.5k|5.5k; twenty pounds|thirty pounds;"
        "half of 12|half of 14; 1.5 euros|15 euros; $10|€10; 30 min|30 hours; 2 kg|2 lb; 100 rupees|100 yen",
    ),
    (
        guards.numbers,
        "fr",
        "Puis-je payer {} pour la livraison ?",
        "10 euros|20 euros; 1 000 €|100 €; deux euros|trois euros;"
        " 3 %|5 %; 1,5 euro|15 euros; vingt francs|trente francs;"
        "10 €|10 $; 2 kg|2 livres; 3 jours|3 semaines",
    ),
    (
        guards.dates,
        "en",
        "Is the museum open {} for schools?",
        "on Monday|on Friday; on 3 March|on 3 May; on 3 March|on 4 March;"
        " today|tomorrow; at 7am|at 7pm; at 10:00|at 11:00;"
        "in 2019|in 2021; next week|last week; as of 2019|as of 2021;"
        " next month|this month; on March 3, 2020|on March 3, 2021;"
        "in June|in July",
    ),
    (
        guards.dates,
        "fr",
        "Le musée est-il ouvert {} pour les écoles ?",
        "lundi|vendredi; le 3 mars|le 3 mai; le 3 mars|le 4 mars;"
        " aujourd'hui|demain; à 10h00|à 11h00; en 2019|en 2021;"
        "la semaine prochaine|la semaine dernière; en juin|en juillet",
    ),
    (
        guards.opposites,
        "en",
        "How do I {} the account of my customer?",
        "enable|disable; open|close; lock|unlock; subscribe|unsubscribe;"
        " activate|deactivate; debit|credit; approve|reject;"
        "upgrade|downgrade; suspend|reinstate; link|unlink;"
        " mute|unmute; extend|shorten; promote|demote; install|uninstall",
    ),
    (
        guards.opposites,
        "en",
        "What must the {} sign in this case?",
        "landlord|tenant; employer|employee; lender|borrower; sender|recipient; buyer|seller; insurer|policyholder;"
        "plaintiff|defendant; donor|recipient; exporter|importer; creditor|debtor",
    ),
    (
        guards.opposites,
        "fr",
        "Comment {} le compte du client ?",
        "activer|désactiver; ouvrir|fermer; bloquer|débloquer; verrouiller|déverrouiller; créditer|débiter;"
        "valider|annuler; installer|désinstaller; brancher|débrancher; inscrire|désinscrire; créer|supprimer",
    ),
    (
        guards.siblings,
        "en",
        "Do you ship the {} model from your depot?",
        "red|blue; green|black; German|Dutch; Python|Java; Windows|Linux;"
        " PDF|CSV; left|right; Paris|Lyon; Leeds|London;"
        "northern|southern; weekly|monthly; Spanish|Portuguese; copper|zinc; cat|dog",
    ),
    (
        guards.siblings,
        "en",
        "What is the distance to the depot in {} by road?",
        "miles|kilometres; metres|feet; hours|days; minutes|hours",
    ),
    (
        guards.siblings,
        "fr",
        "Faut-il un visa pour aller en {} avec un enfant ?",
        "Italie|Espagne; Suisse|Belgique; Chine|Inde; Grèce|Turquie;"
        " Allemagne|Pologne; Égypte|Tunisie; Suède|Norvège;"
        "train|avion; voiture|moto",
    ),
    (
        guards.quantifiers,
        "en",
        "Does {} of the parcels need a stamp by law?",
        "all|none; each|half; all|most; each|none; all|few; most|none; half|all; more|less; most|few; each|few;"
        "half|none; all|half",
    ),
    (
        guards.quantifiers,
        "fr",
        "Mes colis sont {} pesés au départ, c'est la règle ?",
        "tous|seulement; seulement|davantage; tous|moins; toujours|plusieurs; tous|plusieurs; moins|davantage;"
        "uniquement|tous; toujours|moitié",
    ),
    (
        guards.slot,
        "en",
        "{} does the committee decide the budget of the club?",
        "When|Where; When|Why; Where|Why; How often|Why; How often|Where; Why|How long",
    ),
    (
        guards.slot,
        "fr",
        "{} le comité décide le budget du club de tennis ?",
        "Quand|Pourquoi; Où|Pourquoi; Quand|Où",
    ),
    (
        guards.identifiers,
        "en",
        "Is the fault {} mended in the new firmware?",
        "KB-2291|KB-2292; v2.1|v2.2; E404|E405; x86|x64;"
        " CVE-2020-1|CVE-2021-1; RTX3080|RTX3090; rfc822|rfc2822; A4|A5;"
        "=>|->; c++|c#; py3|py2; h264|h265",
    ),
    (
        guards.identifiers,
        "fr",
        "Le défaut {} est-il corrigé par la mise à jour ?",
        "KB-2291|KB-2292; v2.1|v2.2; E404|E405; x86|x64; RTX3080|RTX3090; A4|A5; c++|c#; h264|h265",
    ),
    (
        guards.quotations,
        "en",
        "What does {} print on the screen?",
        "`ls -a`|`ls -A`; `ls -a`|`ls -l`; `x == 1`|`x = 1`;"
        " `Foo()`|`foo()`; `git pull`|`git push`; `a && b`|`a || b`;"
        '`i++`|`++i`; `None`|`null`; `cat a`|`cat b`; `Map`|`map`; "good night"|"cold day"; `[]`|`{}`',
    ),
    (
        guards.quotations,
        "fr",
        "Que fait {} dans ce script de démarrage ?",
        "`ls -a`|`ls -A`; `ls -a`|`ls -l`; `x == 1`|`x = 1`; `git pull`|`git push`; `a && b`|`a || b`; `i++`|`++i`;"
        "« bonne nuit »|« grand jour »; `Map`|`map`",
    ),
    (
        guards.names,
        "en",
        "Which doctor treats {} patients in the east wing?",
        "Kowalczyk|Brandvold; Azithromycin|Pregabalin; Haverlund|Osterbeck; Tadorna|Quillon; Wexcombe|Brindlow;"
        "Larkhill|Penhallow; Ebastine|Nitrofurantoin; Zofenopril|Moxonidine;"
        " Thorvald|Ingeborg; Selkirkshire|Banffshire;"
        "Vardenia|Ostrava; Mirtazapine|Fluoxetine",
    ),
    (
        guards.names,
        "fr",
        "Quel médecin soigne les patients de {} au deuxième étage ?",
        "Kowalczyk|Brandvold; Azithromycine|Prégabaline; Haverlund|Osterbeck; Quillon|Tadorna; Wexcombe|Brindlow;"
        "Larkhill|Penhallow; Ébastine|Moxonidine; Thorvald|Ingeborg",
    ),
]
PAIRS: list[tuple[Guard, str, str, str]] = [
    (guards.dates, "en", "Who is the mayor of Leeds?", "Who is the mayor of Leeds as of 2019?"),
    (guards.dates, "fr", "Qui est le maire de Lille ?", "Qui est le maire de Lille en date du 3 mars 2019 ?"),
    (guards.negation, "en", "Which plants need sun?", "Which plants do not need sun?"),
    (guards.negation, "en", "Why does the printer start by itself?", "Why doesn't the printer start by itself?"),
    (guards.negation, "en", "What happens if I sign the lease?", "What happens if I don't sign the lease?"),
    (guards.negation, "en", "Which files can be shared by guests?", "Which files cannot be shared by guests?"),
    (guards.negation, "en", "Can the field of the form be nullable?", "Can the field of the form be non-nullable?"),
    (guards.negation, "en", "Is the contract valid in France?", "Is the contract invalid in France?"),
    (guards.negation, "en", "Which courses are accredited?", "Which courses are unaccredited?"),
    (guards.negation, "en", "Why is my card accepted abroad?", "Why is my card not accepted abroad?"),
    (guards.negation, "en", "Which members have voted this year?", "Which members have never voted this year?"),
    (guards.negation, "en", "What do I do if the parcel arrives?", "What do I do if the parcel never arrives?"),
    (guards.negation, "en", "Which foods should I eat with gout?", "Which foods should I not eat with gout?"),
    (guards.negation, "en", "Where is smoking allowed on site?", "Where is smoking not allowed on site?"),
    (guards.negation, "fr", "Pourquoi l'imprimante démarre ?", "Pourquoi l'imprimante ne démarre pas ?"),
    (guards.negation, "fr", "Quels fichiers sont partagés ?", "Quels fichiers ne sont pas partagés ?"),
    (guards.negation, "fr", "Que faire si le colis arrive ?", "Que faire si le colis n'arrive pas ?"),
    (guards.negation, "fr", "Où fume-t-on sur le site ?", "Où ne fume-t-on pas sur le site ?"),
    (guards.negation, "fr", "Quelles plantes aiment le soleil ?", "Quelles plantes n'aiment pas le soleil ?"),
    (guards.negation, "fr", "Pourquoi ma carte est acceptée ?", "Pourquoi ma carte n'est pas acceptée ?"),
    (guards.negation, "fr", "Quels membres ont voté ?", "Quels membres n'ont jamais voté ?"),
    (guards.negation, "fr", "Quand doit-on signer le bail ?", "Quand ne doit-on pas signer le bail ?"),
    (guards.order, "en", "Trains from Leeds to York", "Trains from York to Leeds"),
    (guards.order, "en", "How do I convert dollars to euros?", "How do I convert euros to dollars?"),
    (guards.order, "en", "Did Rome defeat Carthage?", "Did Carthage defeat Rome?"),
    (guards.order, "en", "Is tea better than coffee?", "Is coffee better than tea?"),
    (guards.order, "en", "Should I file before I pay?", "Should I pay before I file?"),
    (guards.order, "en", "Can a tenant sue a landlord?", "Can a landlord sue a tenant?"),
    (guards.order, "en", "Moving from Oracle to Postgres", "Moving from Postgres to Oracle"),
    (guards.order, "en", "Does the bank owe the customer?", "Does the customer owe the bank?"),
    (guards.order, "en", "Ship a parcel from Spain to Peru", "Ship a parcel from Peru to Spain"),
    (guards.order, "en", "Is gold heavier than lead?", "Is lead heavier than gold?"),
    (guards.order, "fr", "Train de Lille à Nantes", "Train de Nantes à Lille"),
    (guards.order, "fr", "Le chien mord-il le chat ?", "Le chat mord-il le chien ?"),
    (guards.order, "fr", "Le thé est-il meilleur que le café ?", "Le café est-il meilleur que le thé ?"),
    (guards.order, "fr", "La banque doit-elle payer le client ?", "Le client doit-il payer la banque ?"),
    (guards.scope, "en", "Delete the drafts in my folder", "Delete only the drafts in my folder"),
    (guards.scope, "en", "Does the fee apply to members?", "Does the fee apply only to members?"),
    (guards.scope, "fr", "Les frais valent pour les membres ?", "Les frais valent uniquement pour les membres ?"),
    (guards.languages, "en/fr", "How do I reset my password?", "Comment réinitialiser mon mot de passe ?"),
]

NOT_CERTAIN: list[tuple[str, str, str]] = [
    # The same said otherwise, close and far.
    ("en", "How long is two hours of video?", "How long is 120 minutes of video?"),
    ("en", "Is a month enough for the repair?", "Is 30 days enough for the repair?"),
    ("en", "Does it take a dozen days to arrive?", "Does it take 12 days to arrive?"),
    ("en", "Can I pay $1,000 at once?", "Can I pay 1000 USD at once?"),
    ("en", "Is it shut at 7pm on Monday?", "On Monday at 19:00, is it shut?"),
    ("en", "Can I return it, I bought it on 6 June?", "I bought it in June. Can I return it?"),
    ("en", "Can't I change my booking?", "Can I change my booking?"),
    ("en", "Is the pool open or not?", "Is the pool open?"),
    ("en", "Is it not possible to exclude it?", "Is it impossible to exclude it?"),
    ("en", "What is the most I can spend?", "What is the maximum I can spend?"),
    ("en", "Can I take tea and coffee?", "Can I take coffee and tea?"),
    ("en", "The difference between a loan and a lease", "The difference between a lease and a loan"),
    ("en", "Where can I buy stamps?", "At which place are stamps sold?"),
    ("en", "The cat was chased by the dog", "The dog chased the cat"),
    ("en", "Is GPL v3 fine for us?", "Is GPLv3 fine for us?"),
    ("en", "What does `ls -a` print?", "What does ls -a print?"),
    ("en", "What is the dose for a child of 6?", "My daughter turned six. How much of it may she have?"),
    ("en", "Does the app run on Adeyemi's phone?", "Does the app run on the phone of Adeyemi?"),
    ("en", "How do I cancel my subscripton?", "How do I cancel my subscription?"),
    ("en", "I need admin rights, who grants them?", "I need administrator rights, who grants them?"),
    ("fr", "Puis-je payer mille euros ?", "Puis-je payer 1 000 € ?"),
    ("fr", "Un délai de deux jours suffit ?", "Un délai de 48 heures suffit ?"),
    ("fr", "Le magasin est ouvert ou pas ?", "Le magasin est ouvert ?"),
    ("fr", "Prendre le thé et le café", "Prendre le café et le thé"),
    ("fr", "Rendez-vous à 14h30 lundi", "Lundi, rendez-vous à 14 h 30"),
    ("fr", "Pourquoi la mer est-elle salée ?", "D'où vient que la mer est salée ?"),
    ("fr", "Quel est le maximum autorisé ?", "Au plus, combien est autorisé ?"),
    ("fr", "Que fait `ls -a` ?", "Que fait ls -a ?"),
]


def framed() -> list[tuple[Guard, str, str, str]]:
    return [
        (guard, language, *(frame.replace("{}", part.strip()) for part in pair.split("|", 1)))  # type: ignore[misc]
        for guard, language, frame, pairs in FRAMED
        for pair in (p.replace("a || b", "a \x00 b") for p in pairs.split(";"))
    ]


@pytest.mark.parametrize(("guard", "language", "cached", "asked"), [*framed(), *PAIRS])
def test_it_is_certain_either_way_round(guard: Guard, language: str, cached: str, asked: str) -> None:
    ours, theirs = (language.split("/") * 2)[:2]
    one = analyse(cached.replace("\x00", "||"), ours)
    other = analyse(asked.replace("\x00", "||"), theirs)
    for verdict in (guard(one, other), guard(other, one)):
        assert (verdict.passed, verdict.certain) == (False, True), verdict


@pytest.mark.parametrize(("language", "cached", "asked"), NOT_CERTAIN)
def test_no_guard_is_certain_of_a_rewording(language: str, cached: str, asked: str) -> None:
    one, other = analyse(cached, language), analyse(asked, language)
    assert [v for v in judge(one, other) if not v.passed and v.certain] == []
    assert first_veto(one, other) is None


def test_a_guard_that_fails_vetoes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cached: object, asked: object) -> object:
        raise RuntimeError("no")

    monkeypatch.setattr(guards, "GUARDS", (broken,))
    text = analyse("wifi?", "en")
    verdict = first_veto(text, text)
    assert verdict is not None
    assert verdict.kind == "broken"
