"""Short answers that say nothing: all their words are about answering, or failing to, and none about the matter.

What no list of phrases foresees. A word counts for the matter if it is no small word, none of those that talk about
answering or about a failing service, and not in the question,
which an answer takes up.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise

from cachestack.semantic.admission.base import Finding
from cachestack.semantic.admission.errors import ABOUT_ERRORS
from cachestack.semantic.admission.labels import Label, label
from cachestack.semantic.admission.reading import Reading, clause_of, fold, words_of
from cachestack.semantic.admission.refusals import asks_for_a_text

MAX_WORDS = 45
_NEGATIONS = words_of("not no none nothing never cannot pas aucun aucune rien jamais impossible")
YES_OR_NO = frozenset({"yes", "no", "oui", "non", "si"})
STEM = 5
"""Letters by which two words are one."""

_REFUSING = re.compile(
    r"(?:prompt|input|flag|moderat|block|message|bloqu|modér|help|assist|answer|repl(?:y|ies)|respon[sd]|question|"
    r"request|quer(?:y|ies)|inquir|enquir|topic|subject|matter|theme|issue|discuss|comment|convers|chat|advi[cs]|"
    r"opinion|view|judg|"
    r"inform|detail|data$|knowledge|know|aware|familiar|certain|sure$|clue|idea|record|document|context|text$|"
    r"passage|excerpt|source|content|material|file|provided|given|supplied|"
    r"provid|shar(?:e|ing)|disclos|reveal|divulg|confidential|private|privacy|secret|sensitive|restrict|permit|"
    r"permission|allow|authori[sz]|clearance|access|privilege|grant|right$|rights$|"
    r"scope|remit|purview|expert|competen|capab|abilit|abl[ey]|unable|limit|beyond|outside|off-limits|boundar|reach|"
    r"bound|purpose|design|built|made|meant|program|train|cut-?off|"
    r"polic(?:y|ies)|guideline|rule|terms|complian|comply|violat|breach|against|prohibit|forbid|forbidden|ban|"
    r"banned|illegal|harm|danger|unsafe|safe|ethic|appropriat|inappropriat|offens|"
    r"declin|refus|reject|den(?:y|ied)|abstain|refrain|withhold|avoid|skip|pass$|stop|end$|continue|proceed|engage|"
    r"entertain|indulg|touch|cover|handl|deal|support|fulfil|accommodat|complet|process|perform|"
    r"generat|produc|creat|writ|draft|compos|reproduc|copy|copyright|translat|predict|forecast|speculat|guess|"
    r"estimat|confirm|verif|check|look|search|find|found|fetch|retriev|brows|internet|online|web$|real-time|live$|"
    r"current|"
    r"assistant|bot$|chatbot|model|ai$|machine|virtual|language|system|service|tool|channel|agent|human|colleague|"
    r"team|staff|representative|professional|expert|speciali|doctor|lawyer|authorit|office|contact|consult|ask$|"
    r"asked|see$|visit|website|"
    r"sorry|apolog|regret|unfortun|afraid|alas|excuse|pardon|forgive|mistake|confus|misunderst|inconvenien|trouble|"
    r"patien|thank|understand|appreciat|feel|hope|wish|happy|glad|welcome|please|kindly|"
    r"available|possible|impossible|accessible|visible|yet|anymore|moment|time$|today|currently|now$|something|"
    r"anything|nothing|else|other|another|different|instead|thing|kind|type|sort|way|part|area|side|position|place|"
    r"like$|want|need|let|make|take|give|get|go$|come|keep|stay|leave|say|said|tell|told|talk|speak|spoke|mention|"
    r"state|express|address|"
    r"specific|personal|individual|particular|general|further|more|additional|own|neutral|impartial|biased|"
    r"political|medical|legal|financial|tax|guidance|recommend|suggest|"
    r"aid|assistan|répon|demand|requêt|sujet|thèm|propos|discut|comment|convers|échang|avis$|conseil|opinion|jug|"
    r"inform|détail|donnée|connaiss|connais|sais$|savoir|idée|certain|sûr|renseign|document|contexte|texte|passage|"
    r"extrait|source|contenu|fichier|fourni|"
    r"fourn|partag|divulg|révél|communiqu|transm|confidenti|priv[ée]|secre|sensib|restrein|réserv|perm[ei]|autoris|"
    r"habilit|accès|accéd|access|droit|périmètre|domaine|ressort|rel[èe]v|compéten|capaci|capab|mesure|limit|delà|"
    r"hors|cadre|champ|fonction|rôle|mission|conçu|prévu|programm|entraîn|"
    r"politiqu|consigne|directive|règl|charte|condition|conform|viol|enfrein|contrair|interdi|illég|dange|nuisib|"
    r"éthiq|inappropri|déplac|offens|declin|déclin|refus|rejet|absten|abstien|évit|pass[eé]|arrêt|poursui|continu|"
    r"trait|couvr|gér|satisf|donn|suite|effectu|accompl|exécut|"
    r"génér|produi|cré|rédig|écri|reproduir|traduir|prédir|spécul|devin|confirm|vérif|cherch|trouv|consult|navig|"
    r"internet|ligne|réel|direct$|actuel|assistant|robot|modèl|machine|virtu|langage|système|service|outil|canal|"
    r"agent|humain|collègue|équip|personnel|professionn|expert|spéciali|médecin|avocat|autorité|bureau|contact|"
    r"adress|voir|site$|"
    r"désol|navr|regret|malheur|excus|pardon|erreur|confus|malentend|désagré|gêne|patien|merci|compren|apprécie|"
    r"espèr|souhait|ravi|heureu|volontier|plaisir|dispo|possib|impossib|indispo|encore|moment|instant|temps|aujourd|"
    r"actuell|chose|rien|autre|plutôt|genre|type|façon|partie|place|"
    r"voul|veu[xt]|besoin|laiss|fai[rst]|prend|aller|vien|rest|dire|dit|parl|mention|précis|quelque|particul|"
    r"général|supplément|neutre|impartial|médic|juridi|financ|fiscal|peux|peut|pouv|puis|saur)"
)
_FAILING = re.compile(
    r"(?:error|erro|fail|fault|crash|exception|abort|broke|broken|down$|offline|unavailab|unreach|unrespons|"
    r"overload|busy|capacity|timeout|timed|expire|exceed|exhaust|throttl|quota|limit|retry|again|later|soon|shortly|"
    r"minute|second|moment|"
    r"server|service|system|backend|upstream|gateway|proxy|network|connect|database|api$|endpoint|host|socket|"
    r"request|respons|query|call|job|task|session|token|credential|key$|auth|login|load|process|generat|complet|"
    r"fetch|reach|return|"
    r"technical|internal|unexpected|unknown|temporar|maintenance|outage|interrupt|problem|issue|glitch|hiccup|snag|"
    r"trouble|wrong|went|happen|occur|encounter|engineer|notif|team|support|administrator|admin|contact|report|log|"
    r"trace|reference|code|status|page|refresh|reload|"
    r"please|sorry|apolog|oops|whoops|inconvenien|patien|work|fix|resolv|restor|back|try|wait|moment|operation|"
    r"result|output|answer|empty|null|void|missing|invalid|denied|refus|reset|closed|lost|"
    r"erreur|échec|échou|panne|hors|indispo|injoign|inaccess|surcharg|occup|satur|délai|dépass|expir|épuis|limite|"
    r"quota|réessa|nouveau|tard|bientôt|minute|seconde|instant|serveur|service|système|passerelle|réseau|connexion|"
    r"base|données|hôte|requêt|répon|demand|appel|tâche|session|jeton|clé|"
    r"techniqu|intern|inattend|inconnu|temporair|momentan|mainten|interromp|interrup|coup|problèm|souci|incident|"
    r"anomali|survenu|produit|rencontr|ingénieur|équip|support|assist|administr|contact|signal|journ|trace|"
    r"référence|code|statut|page|actualis|recharg|"
    r"veuillez|merci|désol|excus|oups|gêne|patien|travail|répar|résol|rétabl|opérat|résultat|vide|absent|invalid|"
    r"refus|ferm|perdu|impossib|charg|trait|génér|aboutir|abouti|revenez|revenir)"
)
_CORE_REFUSING = re.compile(
    r"(?:prompt|input|flagged|moderat|blocked|response|bloqué|modér|declin|refus|reject|denied|abstain|refrain|"
    r"withhold|prohibit|forbid|restrict|confidential|disclos|divulg|scope|remit|purview|off-limits|beyond|outside|"
    r"unable|cannot|can't|policy|guideline|violat|inappropriate|permit|authori[sz]|clearance|permission|privacy|"
    r"sensitive|nothing|neutral|avoid|stop|discuss|comment|speculat|topic|question|request|answer|advice|assist|"
    r"déclin|refus|absten|abstien|interdi|confidenti|communiqu|périmètre|hors|delà|dépass|consigne|directive|charte|"
    r"enfrein|contrair|inappropri|habilit|autoris|sensib|rien|neutre|évit|sujet|question|demande|répondre|réponse|"
    r"avis$|conseil)"
)
_CORE_FAILING = re.compile(
    r"(?:response|result|model|generat|réponse|modèle|génér|error|fail|crash|exception|abort|offline|unavailab|"
    r"unreach|overload|timeout|timed|exceed|throttl|quota|retry|outage|maintenance|glitch|hiccup|snag|unexpected|"
    r"temporar|technical|"
    r"erreur|échec|échou|panne|indispo|injoign|surcharg|satur|expir|réessa|mainten|inattend|techniqu|incident|"
    r"anomali|interromp|temporair|momentan|abouti)"
)


@cache
def _small_words() -> frozenset[str]:
    """English and French function words, of the language finder's lists."""
    text = files("cachestack.semantic.lexicon").joinpath("function_words.txt").read_text("utf-8")
    words: set[str] = set()
    for line in text.splitlines():
        if line.startswith(("en ", "fr ")):
            words.update(line.split()[1:])
    return frozenset(words)


def find_hollow(question: str, system: tuple[str, ...], reading: Reading) -> Finding | None:
    """A finding of kind `refusal` or `error`."""
    words = [word for clause in reading.clauses for word in clause.words]
    if reading.is_long or not 1 < len(words) <= MAX_WORDS or any(c.isdigit() for w in words for c in w):
        return None
    if (
        words[0] in YES_OR_NO
        or asks_for_a_text(question, system)
        or any(label(clause) is Label.SOLVING for clause in reading.clauses)
    ):
        return None
    asked = {_stem(word) for word in _words(question)}
    told = [word for word in words if len(word) > 2 and word.rstrip("'") not in _small_words()]
    is_on_errors = ABOUT_ERRORS.search(question.lower()) is not None
    negated = any(word in _NEGATIONS for word in words) or any(
        one[-2:] == "n'" and two == "t" for one, two in pairwise(words)
    )
    for kind, meta, core in (("refusal", _REFUSING, _CORE_REFUSING), ("error", _FAILING, _CORE_FAILING)):
        about = [word for word in told if meta.match(word) and _stem(word) not in asked]
        of_matter = [word for word in told if not meta.match(word) or _stem(word) in asked]
        num_core = sum(core.match(word) is not None for word in words)
        if is_on_errors and kind == "error":
            continue
        says_so = num_core + negated > 0 and len(about) + negated >= 2
        if about and says_so and len(of_matter) * 3 <= len(about):
            return Finding(
                kind, {"shape": "hollow", "words_of_the_matter": len(of_matter), "about_answering": len(about)}
            )
    return None


def _words(text: str) -> tuple[str, ...]:
    return clause_of(fold(text)).words


def _stem(word: str) -> str:
    return word.rstrip("'s")[:STEM]
