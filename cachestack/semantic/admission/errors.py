"""Errors dressed as answers: what a server, a proxy or a program says when it fails.

An answer *about* errors explains; one that is an error does not. Whole documents (HTML pages, JSON bodies, traces) are
known by their shape, short texts by their wording, if nothing of the matter stands beside it.
"""

from __future__ import annotations

import json
import re

from cachestack.semantic.admission.base import Finding
from cachestack.semantic.admission.reading import MAX_READ, Clause, Reading

MAX_JSON = 64 * 1024
"""A longer body is no error's."""
NUM_OPENING = 4
MAX_BESIDE = 9
"""Words of the matter beside an error's text that do not make it an answer."""

_HTML = re.compile(
    r"^\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<(?:\w+:)?(?:fault|exception|errors?|envelope|problem|response|erreur)\b|"
    r"<!doctype\b[^>]{0,200}>|<html\b|<head\b|<center>|<error>|<title>|<body\b|<h1>)",
    re.IGNORECASE,
)
_TRACE = re.compile(
    r"(?:^|\n)\s*(?:traceback \(most recent call last\)|exception in thread |caused by: |goroutine \d+ \[|panic: |"
    r"fatal error: |thread '[^'\n]{0,80}' panicked|"
    r"unhandled (?:exception|rejection|promise)|uncaught (?:exception|\w*error)|segmentation fault|core dumped|"
    r"stack trace:|"
    r"\w{0,60}(?:error|exception): |[\w.$]{1,120}(?:exception|error)(?::|\n)|"
    r"warning: \w+\(\)|(?:php )?(?:fatal|parse|syntax) error\b)",
    re.IGNORECASE,
)
_CRASH = re.compile(
    r"\s*(?:(?:[a-z_]\w{0,40}\.){1,8}\w{0,60}(?:Exception|Error)\b|(?-i:[A-Z][a-z]+(?:[A-Z][A-Za-z]*)?(?:Error|"
    r"Exception)): |error: |rpc error|exit (?:status|code) |curl: |npm err|bash: |command not found|"
    r"traceback \(most recent call last\)|thread '[^'\n]{0,80}' panicked|panic: |segmentation fault|"
    r"exception in thread |fatal error: |uncaught |unhandled |killed$|bus error|aborted \(core|terminate called|"
    r"out of memory)",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^\s*(?:at [\w.$<>\[\] /:-]{1,200}[(:]|file \"[^\"\n]{1,200}\", line \d+|from [^\n:]{1,120}:\d+:in |\d+: +0x|"
    r"#\d+ |\.\.\. \d+ more|[^\s:]{1,120}\.[a-z]{1,5}:\d+(?::\d+)?$)",
    re.IGNORECASE | re.MULTILINE,
)
_LEVEL = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d[^a-z\n]{0,30}\]?\s*)?\[?(?:error|fatal|critical|err|erreur|warn(?:ing)?|severe)\]?\b",
    re.IGNORECASE,
)

_STATUS = (
    r"(?:internal (?:server )?error|bad gateway|gateway time-?out|service (?:is )?(?:temporarily |currently |"
    r"momentarily )?unavailable|too many requests|"
    r"request time-?out|not found|unauthori[sz]ed|forbidden|bad request|payment required|conflict|gone|"
    r"not implemented|method not allowed|"
    r"payload too large|request entity too large|unprocessable entity|not acceptable|loop detected|precondition failed|"
    r"erreur interne(?: du serveur)?|passerelle incorrecte|mauvaise passerelle|mauvaise requête|requête incorrecte|"
    r"service (?:momentanément |temporairement )?indisponible|"
    r"trop de requêtes|non autorisé|accès (?:refusé|interdit)|introuvable|page non trouvée)"
)
_SAYING = re.compile(
    rf"^\W*(?:http(?:/\d(?:\.\d)?)? |error |erreur |code |status(?: code)?:? )*\(?[45]\d\d\)?\W*(?:error\W*|"
    rf"erreur\W*)?(?:{_STATUS}|client error|server error)"
    rf"|^\W*{_STATUS}\W*(?:$|\(|\b[45]\d\d\b|error|:|please|\.|request)"
    r"|\b(?:server|http|api|upstream|network|connection|database|gateway|proxy|runtime|system|serveur|réseau|"
    r"système|application|client|internal|interne|unknown|unexpected|inconnue|inattendue|fatal|fatale|"
    r"openai|anthropic|model|inference|provider|backend|hardware|ssl|tls|dns|socket|protocol|validation|"
    r"authentication|configuration|processing|timeout|parsing|decode|token) ?(?:error|erreur|failure|exception|"
    r"fault)\b"
    r"|\berreur (?:\d+|http|interne|serveur|réseau|système|inattendue|inconnue|technique|fatale|de (?:connexion|"
    r"serveur|réseau|traitement|communication|validation|l'api|base de données|syntaxe|délai|certificat|"
    r"configuration|chargement)|du serveur|lors d|est survenue|s'est produite|500|40\d|50\d)"
    r"|^\W*(?:fatal )?(?:error|err|erreur|exception|failed|failure|échec)\b ?(?:[:#=\[(-]|code|\d|\w+:|$|while|in |"
    r"lors|at |from |\.|occurred|processing|during|generating|loading|calling|connecting|reading|parsing|fetching|"
    r"executing|handling|running|sending|retrieving|when |de |du |d')"
    r"|\b(?:an? )?(?:\w+ ){0,3}(?:error|issue|problem|exception|failure|glitch) (?:has |have )?(?:occurred|happened|"
    r"was encountered|was thrown|encountered)"
    r"|\b(?:encountered|experienced|ran into|hit|there was|there's been|there has been|we had|got|received|returned|"
    r"threw|raised) an? (?:\w+ ){0,3}(?:error|issue|problem|exception|failure|timeout)"
    r"|\b(?:something|things?) (?:went|has gone|have gone|go) wrong\b|\bquelque chose s'est mal (?:passé|déroulé)|"
    r"\b(?:hit|run into|ran into|struck) a (?:snag|problem|wall|glitch)|\bsouci technique\b|\b(?:we're|we are|i'm|"
    r"i am|site's|everything is) (?:currently |temporarily )?(?:down|offline|undergoing|under maintenance|"
    r"experiencing)|^(?:please )?(?:try|retry) (?:again|later|your request|this request)\b|\b(?:content|safety|"
    r"moderation) filter|\b(?:completion|response|output|answer|content|generation|réponse|contenu) (?:was |"
    r"has been |is |got |a été |est )?(?:filtered|blocked|removed|withheld|suppressed|censored|filtré|bloqué|"
    r"supprimé|masqué)|\bon (?:our|my) (?:end|side)\b|\b(?:heavy|high|unusual|extreme) (?:load|demand|traffic|"
    r"volume)|\btaking a (?:break|nap|rest)|\b(?:limit|quota|cap) (?:is |was |has been )?(?:reached|exceeded|hit)\b|"
    r"\bdidn't (?:work|go through)\b|\b(?:reconnecting|reconnexion)\b|"
    r"\b(?:n'a pas|n'ont pas) (?:marché|fonctionné|abouti)|\b(?:très|trop|fortement) sollicité|\btrop de monde|"
    r"\b(?:serveur|service|système|modèle|ligne)s? (?:\w+ ){0,2}(?:occupé|saturé|débordé)|\bn'a rien (?:renvoyé|"
    r"retourné|répondu|généré)|\b(?:returned|returns|gave|sent) (?:nothing|no (?:output|content|response|text|"
    r"answer|data))|\b(?:crédits?|solde|jetons) (?:épuisé|insuffisant|écoulé)|\b(?:input|prompt|text|message|"
    r"request|texte|message|requête) (?:is |est )?(?:too long|too large|trop longu?e?)|\b(?:model|deployment|engine|"
    r"endpoint|resource|modèle|ressource) (?:\w+ )?(?:not found|does not exist|doesn't exist|introuvable|"
    r"n'existe pas)|\b(?:max|maximum) tokens?\b|\b(?:something|everything|it|server|app|system|model|we) (?:just |"
    r"has |have )?(?:broke|crashed)\b|\b(?:scheduled|planned|routine|emergency|programmée|planifiée) maintenance|"
    r"\bmaintenance (?:programmée|planifiée|en cours|window|mode|in progress)|\bback (?:soon|shortly|online)|"
    r"\boops\b|\boups\b|\baïe\b|\buh[- ]oh\b"
    r"|\b(?:une|un) (?:\w+ ){0,3}(?:erreur|problème|incident|exception|souci)s? ?(?:\w+ ){0,2}(?:est|s'est|a été|"
    r"sont|nous|empêche)"
    r"|\b(?:rate[- ]?limit\w*|quota)\b.{0,60}(?:exceed|reach|hit|error|limit|retry|wait|try|dépassé|atteint|"
    r"exhaust)|\b(?:exceeded|reached|hit|out of) (?:your|the|its|our|my) (?:\w+ ){0,3}(?:quota|rate limit|limit|"
    r"usage|credits?|tokens?)"
    r"|\brate[- ]?limit(?:ed|er)?(?: (?:reached|exceeded|error))\b|\btoo many (?:requests|attempts|connections|"
    r"concurrent)\b|\btrop de (?:requêtes|demandes|tentatives|connexions)\b"
    r"|\b(?:limite|quota|plafond|nombre maximal|nombre maximum)\b.{0,50}(?:atteint|dépassé|épuisé)"
    r"|\b(?:request|connection|operation|response|server|query|upstream|session|call|read|gateway|deadline|socket|"
    r"job|task|execution|host|inference|generation) (?:\w+ ){0,2}(?:timed? ?-?out|time ?-?out|aborted|refused|reset|"
    r"closed|failed|expired|exceeded|dropped|lost|interrupted|terminated|overloaded|unreachable|not respond\w*)"
    r"|\btimed out\b|\btimeout\b|\bdeadline exceeded\b|\bdélai (?:d'attente |de réponse |imparti |"
    r"d'expiration )?(?:est |a été )?(?:dépassé|expiré|écoulé)"
    r"|\b(?:connexion|requête|opération|session|serveur|demande|réponse|appel|liaison|"
    r"service) (?:\w+ ){0,4}(?:expiré|interrompu|refusé|perdu|échoué|impossible|fermé|réinitialis|surchargé|"
    r"ne répond|n'a pas répondu|n'est pas joignable|injoignable|indisponible|a mis trop|dépassé|saturé|abandonné|"
    r"coupé)"
    r"|\b(?:model|server|service|system|engine|site|api|platform|provider|cluster|backend|endpoint|assistant|"
    r"application|app) (?:is|are|was|seems|appears)(?: to be)? (?:\w+ ){0,2}(?:overloaded|unavailable|down|offline|"
    r"busy|unreachable|at capacity|under maintenance|experiencing|not (?:responding|available|reachable|found|"
    r"loaded)|under (?:heavy|high)|starting|warming|loading)"
    r"|\b(?:modèle|serveur|service|système|site|plateforme|application|assistant|api)(?: (?:de|d'|du|"
    r"des) ?\w+)?(?: \w+)? (?:est|sont|semble) (?:\w+ ){0,2}(?:indisponible|surchargé|en panne|hors ligne|"
    r"injoignable|en maintenance|inaccessible|saturé|en cours)"
    r"|\b(?:econnrefused|econnreset|etimedout|enotfound|eai_again|ehostunreach|epipe|sigkill|oomkilled|sqlstate|"
    r"ora-\d+|errno|err_\w+|nullpointerexception|nonetype|undefined is not|cannot read propert|is not defined|"
    r"is not a function|stack overflow|out of memory|cuda|segfault|keyerror|typeerror|valueerror|runtimeerror|"
    r"no healthy upstream|upstream (?:connect|request|prematurely|sent|returned|error)|connect error|"
    r"remote end closed|max retries|name or service not known|getaddrinfo|handshake|certificate (?:verify|"
    r"has expired))\b"
    r"|\b(?:invalid|missing|incorrect|expired|malformed|unsupported|bad|no|wrong|revoked|unknown|unrecognized|"
    r"illegal) (?:\w+ ){0,2}(?:api[- ]?key|token|credentials?|parameters?|payload|json|request(?:_error)?|response|"
    r"header|signature|authentication|argument|input|model|endpoint|bearer|authorization|syntax|body|schema)"
    r"|\b(?:api[- ]?key|token|credentials?|certificate|licen[cs]e|session|subscription) (?:is|are|was|has|"
    r"have) (?:\w+ ){0,2}(?:invalid|missing|expired|incorrect|revoked|malformed|not (?:valid|found|recogni[sz]ed))"
    r"|\b(?:clé (?:d'api|api)|jeton|identifiants?|paramètre|requête|réponse|certificat|"
    r"signature) (?:\w+ ){0,2}(?:invalide|manquant|incorrect|expiré|refusé|révoqué|non valide|erroné|mal form)"
    r"|\b(?:context|prompt|maximum|max|token)(?: context)? (?:length|limit|size|"
    r"window)(?:_exceeded)?\b.{0,60}(?:exceed|is \d|tokens|too)|\bmaximum context length\b|\bcontext_length\w*"
    r"|(?:\bfailed|\bunable|\bcould ?not|\bcouldn't|^cannot|^can't|impossible|échec) (?:to |d'|de (?:la |"
    r"l')?)?(?:\w+ ){0,2}(?:connect|load|fetch|reach|parse|decode|open|retrieve|generate a response|get a response|"
    r"complete the (?:request|operation)|process (?:the|your|this) (?:request|response)|resolve host|establish|read|"
    r"write|execute|allocate|authenticate|serialize|initiali[sz]e|"
    r"connexion|connecter|joindre|charger|récupérer|générer|traiter (?:la|votre|cette) (?:requête|demande)|lire|"
    r"ouvrir|établir|contacter|authentifi|décoder|analyser)"
    r"|\b(?:error|status|erreur|exit|return)(?: ?code| ?id| ?ref\w*)? ?[:=#-]? ?\d{2,}\b|\b(?:http|status|"
    r"statut) (?:code )?[45]\d\d\b|\b[45]\d\d (?:error|erreur|client|server)"
    r"|\b(?:permission|access) denied\b|\bno such file\b|\bdisk (?:is )?full\b|\bno space left\b|\bprocess exited\b|"
    r"\bexit(?:ed)? (?:with )?(?:code|status)\b|\b(?:billing|account) .{0,30}(?:hard limit|deactivated|suspended|"
    r"inactive|not active)\b|\binsufficient[_ ](?:quota|credits?|funds|balance)\b"
    r"|\b(?:an unknown|an unexpected|unexpected (?:token|end|eof|response|status)|unhandled|aborted|server closed|"
    r"bad response|empty response|no response|null response|internal failure|please enable (?:javascript|cookies)|"
    r"checking your browser|verify you are (?:a )?human|ray id)\b"
)
_BESIDE = re.compile(
    r"\b(?:another (?:go|try)|come back|revenez|try(?:ing)? (?:again|later|your|once|refresh)|retry|reload|refresh|"
    r"later|contact|support|administrator|help center|apologi\w+|sorry|inconvenience|wait|request id|trace|"
    r"ref(?:erence)?|"
    r"correlation|session id|incident|engineers|team (?:is|has|have)|working (?:on|to)|notified|been (?:logged|"
    r"reported)|shortly|status page|few (?:minutes|moments|seconds)|moment|seconds|see (?:logs?|https?)|"
    r"check (?:your|the) (?:connection|internet|logs?|network|plan)|"
    r"billing|upgrade (?:to|your|now)|details|plan|docs?|https?:|report this|persists|continues|"
    r"current(?:ly)? (?:limit|"
    r"usage)|limit|requested|tokens|"
    r"réessaye[rz]|réessayer|plus tard|ultérieurement|contacte[rz]|assistance|administrateur|désolé\w*|excus\w+|"
    r"patiente[rz]|patienter|identifiant|référence|équipes?|quelques (?:instants|minutes|secondes)|"
    r"rechargez|actualise[rz]|rafraîchi\w+|vérifie[rz] votre|journa\w+|détails|gêne|désagrément|instants?|persiste|"
    r"technique|en cours|rétabli\w*)\b"
)
_EXPLAINS = re.compile(
    r"\b(?:means?|indicates?|usually|typically|often|happens|occurs|appears|because|caused|cause|causes|due to|"
    r"to fix|to resolve|to solve|you can|you need|you should|you have to|make sure|instead|for example|such as|"
    r"when (?:the|a|you|your)|if (?:you|the|your) (?!problem|issue|error|persist)|"
    r"refers|stands for|is (?:an?|the) (?:\w+ ){0,3}(?:status|code|error|response|message|exception)|tells|"
    r"says that|points|try to|first|the (?:cause|reason|fix)|"
    r"signifie\w*|indique\w*|souvent|généralement|se produit|survient|parce que|car|à cause|pour (?:corriger|"
    r"résoudre|régler|éviter)|vous (?:pouvez|devez)|il (?:faut|suffit)|assurez-vous|par exemple|lorsque|quand|"
    r"désigne|correspond|veut dire|vient (?:de|du|souvent)|apparaît|il s'agit)\b"
)


def find_error(question: str, answer: str, reading: Reading) -> Finding | None:
    """A finding of kind `error`."""
    head = answer[:MAX_READ]
    shape = _document(answer, head)
    if shape == "crash" and ABOUT_ERRORS.search(question.lower()) and _EXPLAINS.search(head.lower()):
        return None
    if shape in ("json", "html") and _ABOUT_BODIES.search(question):
        return None
    if shape is not None:
        return Finding("error", {"shape": shape})
    if _CONSTANT.fullmatch(answer.strip()) or (answer.strip() in _CODES and not _ASKS_NUMBER.search(question.lower())):
        return Finding("error", {"shape": "code"})
    if reading.is_long:
        return None
    opening = reading.clauses[:NUM_OPENING]
    said = [clause for clause in opening if _SAYING.search(clause.text)]
    if not said or any(_EXPLAINS.search(clause.text) for clause in reading.clauses):
        return None
    beside = sum(len(c.words) for c in reading.clauses if not _SAYING.search(c.text) and not _is_beside(c))
    if ABOUT_ERRORS.search(question.lower()):
        longest = max(len(clause.words) for clause in said)
        return Finding("error", {"shape": "text"}) if beside == 0 and longest <= MAX_BESIDE else None
    if beside <= MAX_BESIDE:
        return Finding("error", {"shape": "text", "words_of_the_matter": beside})
    return None


def _is_beside(clause: Clause) -> bool:
    return _BESIDE.search(clause.text) is not None


def _document(answer: str, head: str) -> str | None:
    if _HTML.match(head):
        return "html"
    if (begin := head.lstrip()[:1]) in ("{", "["):
        return "json" if _is_error_body(answer if len(answer) <= MAX_JSON else "", begin) else None
    if head.lstrip().lower().startswith(("http/1", "http/2")):
        return "http"
    frames = len(_FRAME.findall(head))
    traced = _TRACE.search(head)
    if _CRASH.match(head) and (not _explained(head) or ("\n" not in head.strip() and len(head) <= 300)):
        return "crash"
    num_lines = len([line for line in head.splitlines() if line.strip()])
    is_bare = frames >= 1 and num_lines - frames <= 2 and _CRASH.match(head) is not None
    if traced is not None and frames >= 1 and (is_bare or not _explained(head)):
        return "stack_trace"
    if frames >= 3 and not _explained(head) and frames * 2 >= len([line for line in head.splitlines() if line.strip()]):
        return "stack_trace"
    if _LEVEL.match(head) and not _explained(head) and traced is not None:
        return "log"
    return None


def _explained(text: str) -> bool:
    """Prose beside the trace that says what it means."""
    return _EXPLAINS.search(text.lower().replace("most recent call last", "").replace("caused by", "")) is not None


_ABOUT_BODIES = re.compile(r"\b(?:json|xml|html|body|payload|corps|schema|schéma)\b", re.IGNORECASE)
_CONSTANT = re.compile(
    r"(?:[A-Z0-9]{1,24}_){0,6}(?:ERR|ERROR|FAIL|FAILED|FAILURE|TIMEOUT|RESET|REFUSED|UNAVAILABLE|EXCEEDED|INVALID|"
    r"DENIED|EXHAUSTED|ABORTED|FOUND|INTERNAL)(?:_[A-Z0-9]{1,24}){0,6}"
)
_CODES = frozenset({"400", "401", "403", "404", "408", "409", "413", "422", "429", "500", "502", "503", "504"})
_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:many|much)|number|count|port|code|status|http|room|price|cost|sum|total|calcul\w*|combien|numéro|"
    r"nombre|prix|quel\w* (?:code|port)|statut|salle|chambre|what is \d|\d)\b"
)
ABOUT_ERRORS = re.compile(
    r"\b(?:error|erreur|exception|http|status|statut|message|code|timeout|crash|bug|log|4\d\d|50\d|fail\w*|échec|"
    r"échou\w+|quota|rate limit|traceback|trace)\b"
)
_ERROR_KEYS = frozenset(
    {
        "error",
        "errors",
        "exception",
        "stacktrace",
        "stack_trace",
        "traceback",
        "error_code",
        "errorcode",
        "error_message",
        "errormessage",
        "erreur",
        "erreurs",
    }
)
_MESSAGE_KEYS = frozenset(
    {
        "message",
        "detail",
        "details",
        "title",
        "status",
        "code",
        "statuscode",
        "status_code",
        "type",
        "reason",
        "msg",
        "success",
        "ok",
        "description",
        "request_id",
        "path",
        "timestamp",
        "trace_id",
    }
)
_FAILING = re.compile(
    r"\b(?:not (?:authenticated|authorized|allowed|found|available)|invalid|missing|denied|forbidden|"
    r"unauthori[sz]ed|failed|error|expired|exceeded|unavailable|erreur|refusé|introuvable)\b"
)
_FAILED = frozenset({"error", "failed", "failure", "fail", "erreur", "échec", "unauthorized", "forbidden", "not_found"})


def _is_error_body(text: str, begin: str) -> bool:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(body, list):
        body = body[0] if len(body) == 1 else None
    if not isinstance(body, dict) or not body:
        return False
    keys = {str(key).lower(): value for key, value in body.items()}
    named = [value for key, value in keys.items() if key in _ERROR_KEYS]
    if any(_says(value) for value in named):
        return len(keys) <= 8
    if any(keys.get(key) == [] for key in ("choices", "content", "output", "candidates", "completions")):
        return True
    if not keys.keys() <= _MESSAGE_KEYS:
        return False
    codes = [value for key, value in keys.items() if key in ("status", "code", "statuscode", "status_code")]
    if codes and isinstance(keys.get("message", keys.get("detail")), str) and len(keys) <= 4:
        return True
    if any(
        isinstance(code, (int, str))
        and not isinstance(code, bool)
        and str(code)[:3].isdigit()
        and 400 <= int(str(code)[:3]) <= 599
        for code in codes
    ):
        return True
    if (
        keys.get("success") is False
        or keys.get("ok") is False
        or any(str(v).lower() in _FAILED for v in keys.values() if isinstance(v, str))
    ):
        return True
    return len(keys) == 1 and any(
        isinstance(keys.get(k), str)
        and (_SAYING.search(str(keys[k]).lower()) is not None or _FAILING.search(str(keys[k]).lower()) is not None)
        for k in ("message", "detail", "msg")
    )


def _says(value: object) -> bool:
    return value not in (None, False, "", 0, [], {}, "none", "null")
