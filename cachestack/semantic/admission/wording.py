"""What clauses of refusals, apologies and questions back are made of, in English and French.

Sets are of words as `reading.py` cuts them; patterns are searched in a clause's text. No pattern has a repetition
inside a repetition: each takes steps in proportion to the clause.
"""

from __future__ import annotations

import re

from cachestack.semantic.admission.reading import words_of


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


I = words_of("i i'")  # noqa: E741
JE = words_of("je j'")
MINE = words_of("me my mine myself m' moi mon ma mes")
NEGATIVE = words_of(
    "not cannot never no unable nothing neither nor unsure decline refuse lack without forbidden prohibited restricted "
    "cant dont wont couldnt prefer rather pass abstain barely hardly unfamiliar unaware incapable "
    "uncomfortable limited "
    "impossible"
)
NEGATIVE_FR = words_of(
    "ne n' pas jamais aucun aucune rien impossible incapable refuse décline ignore sans abstenir abstiens interdit "
    "préfère inapte limité limitée nullement regret"
)
LIMIT = words_of(
    "beyond outside off limits limit limited prevent prevents prohibit prohibits forbid forbids restricted "
    "exceeds exceed "
    "against neutral only cutoff cut-off unavailable inaccessible reach dépasse dépassent excède sort sortent "
    "hors au-delà "
    "interdit interdisent interdite relève limité limitée limitées arrêtent arrête empêche empêchent contraire "
    "strictement seulement uniquement inaccessible indisponible"
)
OPINION = _any(
    r"\b(?:nous|on) (?:ne |n')(?:\w+ ){1,4}(?:\w+ )?(?:que |qu')",
    r"\bi (?:really |just )?(?:do not|don't|wouldn't|would not) (?:think|believe|recommend|worry|mind|suggest|"
    r"advise|expect)\b",
    r"\b(?:je (?:vous |te )?(?:conseille|recommande|suggère|propose|dirais|choisirais|prendrais)|i (?:would |"
    r"'d )?(?:recommend|suggest|advise|choose|pick|say)|i'd (?:go|choose|pick|say|take)|(?:i'm |i am |"
    r"i'm )?afraid (?:not|so))\b",
    r"\b(?:i see no reason|i have no doubt|i can't recommend it enough|i can't wait|i couldn't agree more)\b",
    r"\bje ne (?:pense|crois|vois|doute|conseille|recommande|conseillerais|recommanderais) ",
    r"\b(?:saurais trop|n'hésitez|i'd rather (?:take|choose|use|go|buy))\b",
)
"""First persons with a negation that say something of the matter."""

STRONG = _any(
    r"\bas an? (?:ai|artificial|large|language|virtual|digital|automated|assistant|chatbot)\b",
    r"\b(?:i'm|i am) (?:just|only|merely|simply|but) an? (?:ai|bot|language|virtual|computer|assistant|chat|machine|"
    r"program)",
    r"\b(?:i'm|i am) an? (?:ai|language model|virtual assistant|bot|chatbot|large language)\b",
    r"\ben tant qu(?:e |')(?:ia|intelligence|assistant|modèle|chatbot|agent|robot)",
    r"\bje (?:ne )?suis (?:qu'|seulement |simplement |juste )?(?:une?) (?:ia|intelligence|assistant|modèle|chatbot|"
    r"robot|programme)",
    r"\b(?:help|assist)(?: you)? (?:with|in|on) (?:that|this|it|such|your|requests?|these|those|any)\b.{0,40}$(?<!\?)",
    r"(?:can't|cannot|can not|couldn't|unable to|not able to|won't|will not|not going to|not allowed to|"
    r"not permitted to|"
    r"not authori[sz]ed to|not in a position to|not comfortable|not willing to|must decline to|have to decline to|"
    r"decline to|not supposed to|not qualified to|not designed to|not programmed to|not equipped to|i never) "
    r"(?:be able to |currently |directly |really |actually |possibly |legally )?"
    r"(?:help|assist|fulfil|comply|answer|respond|reply|discuss|disclose|reveal|divulge|engage|accommodate|"
    r"generat|creat|produc|writ|provid|process|complet|support (?:this|that|your)|participat|facilitat|"
    r"talk about|comment|advis|continue|proceed|do (?:that|this|it)|go into|speculat|take a (?:side|position)|"
    r"translat|summari[sz]|reproduc|share|giv|offer|access|brows|verify|confirm|predict|diagnos|tell you|speak)",
    r"\b(?:must|have to|will|need to|i'll|i|respectfully|politely) (?:respectfully |politely )?(?:decline|refuse|"
    r"refrain|abstain)\b",
    r"\b(?:i'll|i will|i have to|i must|i'm going to|let me) pass on\b",
    r"\b(?:goes|is|would be|runs) against (?:my|our|the|academic|company|its)\b",
    r"\b(?:violat|breach|contraven|infring|conflict)\w* (?:with )?(?:my|our|the|company|usage|content|safety) ",
    r"\b(?:content|usage|safety|use|acceptable) polic(?:y|ies)\b.{0,60}\b(?:prohibit|prevent|forbid|not allow|"
    r"don't allow|against)",
    r"\b(?:this|that|your|the) (?:request|question|topic|query|subject|action|content|operation|kind of request|"
    r"sort of thing)"
    r"s? (?:is|are|falls?|lies|goes|was|has been|seems) "
    r"(?:well |far |currently |simply )?(?:outside|beyond|off|not (?:something|supported|allowed|permitted|covered|"
    r"part|one)|"
    r"blocked|declined|denied|rejected|refused|flagged|inappropriate|prohibited|out of)",
    r"\b(?:this|that) (?:is|isn't|'s|falls?) ?(?:not )?(?:something |a (?:topic|subject|question|matter) )?(?:that )?"
    r"(?:i|we) (?:can't|cannot|can|am|'m|don't|won't|will)",
    r"\b(?:out of|outside(?: of)?|beyond|not within|not in) (?:my|our|the) (?:scope|remit|area|expertise|capabilit|"
    r"abilit|"
    r"purview|competence|control|reach|knowledge|field|domain)",
    r"\b(?:request|access|permission) (?:denied|declined|refused|rejected|not (?:allowed|permitted))\b",
    r"^(?:no comment|next question|nice try|not happening|no can do|nope|absolutely not|denied|declined|no way)\b",
    r"\b(?:sorry|apologi\w+|regret|afraid)\b.{0,30}\b(?:no can do|can't|cannot|unable|not able|won't|not possible|"
    r"not allowed|don't know|no idea)",
    r"\blet(?:'s| us) (?:talk about|change|move on|focus on|keep|stick|discuss|steer|get back|return|not go)",
    r"\b(?:ne peux|ne puis|peux|ne pouvons|ne saurais|ne saurions|ne suis|n'étant|suis|ne sommes|n'est|est|m'est|"
    r"nous est|serait|ne serai|ne pourrai|"
    r"ne pourrais|ne vais|refuse|dois|regrette de) .{0,40}"
    r"(?:vous aider|t'aider|aider|répondre|assister|donner suite|traiter|renseigner|communiquer|divulguer|révéler|"
    r"fournir|"
    r"générer|rédiger|produire|discuter|aborder|évoquer|exécuter|effectuer|accéder à (?:cette|votre|ta)|satisfaire|"
    r"accomplir)"
    r".{0,60}$(?<!\?)(?<! voici)",
    r"\bdans l'(?:impossibilité|incapacité)\b",
    r"\b(?:off limits|off-limits|steer(?:ing)? clear of (?:this|that|such|the topic|politic\w*|it)|hors limites|"
    r"(?:passe|passerai) mon tour|not (?:something|a thing) (?:i|we|this)|isn't (?:something|a thing) (?:i|we|this)|"
    r"(?:must|have to|will|going to) (?:end|stop|close|terminate) (?:the|this|our) (?:discussion|conversation|chat|"
    r"exchange)|(?:prevents?|stops?|keeps?|bars?|prohibits?|forbids?) (?:me|us) from|"
    r"(?:m'|nous )(?:empêche\w*|interdi\w+)|prefer to (?:stay|stick|keep|talk|discuss)|(?:préfère|préférerais|"
    r"préférons) (?:ne pas|éviter|parler|m'abstenir|rester|en rester))\b",
    r"\b(?:cette|votre|ta|ce|la) (?:demande|question|requête|sujet|action|opération|thème|type de)s? .{0,20}"
    r"(?:enfreint|viole|dépasse|sort|ne relève|n'entre|ne fait pas partie|n'est pas (?:autoris|permis|pris|traité|"
    r"couver)|contraire|"
    r"est (?:refusée|rejetée|bloquée|hors|interdit)|va à l'encontre|contrevient|n'est pas de mon)",
    r"\b(?:contraire|va à l'encontre|contrairement) (?:à|aux|de|des) (?:mes|nos|la|ma) ",
    r"\b(?:parlons|changeons|passons|concentrons-nous|revenons|restons)\b.{0,20}(?:autre chose|sujet|à autre|thème)",
    r"^(?:impossible|refusé|accès refusé|demande refusée|désolé\w*,? (?:impossible|c'est non|je ne|mais je|non))\b",
    r"\b(?:hors de|en dehors de|au-delà de) (?:mon|ma|mes|notre|nos) ",
    r"\b(?:for|due to|because of|out of) (?:\w+ )?(?:privacy|security|legal|confidentiality|safety|compliance|"
    r"regulatory|policy|data protection|ethical|copyright)(?: \w+)? (?:reasons?|rules|concerns|law|considerations)|"
    r"pour (?:des |de )?(?:raisons? |motifs? )(?:de |d')?(?:\w+ ){0,2}(?:confidentialité|sécurité|légal|juridique|"
    r"éthique|droit|protection|conformité|vie privée)",
    r"\b(?:can't|cannot|can not|couldn't|may not|must not|won't|will not|not|never) be (?:opened|shared|discussed|"
    r"answered|given|provided|disclosed|accessed|revealed|processed|completed|fulfilled|generated|shown|displayed|"
    r"told|commented|published) (?:here|by|in|through|via|on|with|to|at|for|without)",
    r"\b(?:data protection|my hands are tied|les mains liées|that's classified|(?:ir)?responsible of me|"
    r"inappropriate (?:of|for) me|de ma part de (?:répondre|vous|donner)|boule de cristal|crystal ball|"
    r"(?:was|am|been|'m|is) (?:only |last )?(?:trained|updated) (?:on|until|up|through|in|before)|would (?:require|"
    r"need) (?:access|knowing|more|your)|require access to|"
    r"(?:matter|question|one|topic|job) for (?:your|a|an|the) (?:lawyer|doctor|gp|accountant|professional|expert|"
    r"solicitor|human|specialist|bank|employer|insurer|vet|pharmacist|notary|manager|adviser|advisor|police|court)|"
    r"(?:ask|demander à|auprès d') ?(?:a|an|un|une)? ?(?:human|humain|real person)|(?:log|sign) in to (?:see|view|"
    r"read|access|get)|(?:connectez|identifiez|abonnez)-vous pour (?:voir|consulter|lire|accéder)|"
    r"(?:only )?(?:available|open|reserved|restricted) (?:only )?(?:to|for) (?:premium|paying|registered|subscri\w+|"
    r"members|pro) ?|réservée?s? aux (?:abonnés|membres|clients premium)|"
    r"keep (?:such|these|those|that) (?:\w+ )?(?:internal|private|confidential|to ourselves)|no one but|in (?:poor|"
    r"bad) taste|(?:posez|pose)-(?:moi|nous) (?:plutôt )?une autre|ask me something else|(?:est|is) tabou?)",
    r"\b(?:off the table|(?:has|have|needs?|must) (?:to )?come from (?:a|an|your)|goes? beyond (?:acceptable|"
    r"permitted|what|my|our|the)|(?:is|are|isn't|aren't) (?:not )?(?:a )?part of (?:this|my|our) (?:service|role|"
    r"job|remit|scope|mandate)|"
    r"(?:n't|not) (?:\w+ )?(?:exposed|visible|accessible|shown|open|connected|linked|given|passed) to (?:this|me|"
    r"the (?:assistant|bot|chat))|(?:must|need to|have to|should) (?:first )?(?:authenticate|verify your identity|"
    r"log in first)|authentifiez-vous|(?:isn't|is not) (?:my|our) (?:role|job|place|task))\b",
    r"\b(?:none of (?:the|these|those|my|our) (?:\w+ )?(?:documents?|sources?|articles?|passages?|pages?|results?|"
    r"files?|texts?)|aucun(?:e)? des (?:documents?|sources?|textes?|pages?|extraits?)|polic(?:y|"
    r"ies) (?:\w+ )?(?:prevents?|forbids?|prohibits?|bars?|bans?|disallows?)|(?:politique|charte|règlement|loi|"
    r"direction)(?: \w+)? (?:l'|me l'|nous l')?interdi\w+)\b",
    r"\b(?:disabled|deactivated|switched off|turned off|not enabled|désactivée?s?|bloquée?s?|indisponibles?) "
    r"(?:for|in|on|by|dans|pour|sur|par) (?:this|the|our|cet|cette|ce|votre|nos)\b",
    r"\bne (?:peut|peuvent|saurait|sauraient|pourra) (?:pas )?être [a-zéè]{3,20} (?:par|ici|dans|sur|via|à|en)\b|"
    r"\b(?:i|je) refuse\b",
    r"^(?:conformément (?:à|aux) (?:nos|mes|notre|ma|la)|(?:in line with|in accordance with|under|per|according to|"
    r"as per) "
    r"(?:our|my|company) (?:\w+ )?(?:polic|guideline|rule|term|charter))",
    r"\b(?:above my pay grade|not my (?:area|department|place|job|call|field|role)|not up for (?:discussion|debate)|"
    r"none of my business|pas (?:mon rayon|de mon ressort|à moi de|dans mes (?:cordes|attributions|compétences)))\b",
    r"\b(?:earlier|previous|last|prior|précédent\w*|dernière?|d'avant) (?:message|reply|response|answer|réponse|"
    r"explanation|statement)\b",
    r"\b(?:outside|beyond|not|more than|past) what (?:this|the|i|we|i'm|our) ",
    r"\b(?:(?:i|we) (?:have been|was|were|am|are|'ve been|'m) (?:told|asked|instructed|configured|designed|set up|"
    r"required|obliged|permitted|allowed|only) (?:not |only )?(?:to|for|by)|draw the line|très peu pour moi|"
    r"keep (?:that|this|it) to myself|would sooner|(?:j'ai|on m'a|je suis) (?:pour consigne|demandé de|"
    r"tenu\w* (?:de|au|à)|pour instruction))\b",
    r"\bne (?:vous |te |nous )?(?:seront|sera|peut|peuvent|saurait|sauraient) (?:pas |en aucun cas |"
    r"être )+(?:être )?(?:communiqu|divulgu|fourni|transmis|partag|donn|révél|trait|abord|affich|montr|consult|"
    r"publi|access|génér)",
)
"""What nobody says but one who does not answer; also where the question asks for a text to be written."""

WEAK = _any(
    r"\b(?:context|documents?|passages?|text|sources?|knowledge base|article|excerpt|information (?:given|provided|"
    r"available)|"
    r"provided \w+) (?:given |provided |above |supplied )?(?:do(?:es)? not|don't|doesn't|did not|didn't|lacks?|"
    r"has no|have no|is (?:in|not )sufficient)",
    r"\b(?:context|documents?|passages?|text|sources?|knowledge base|article|excerpt|material|"
    r"notes)\b.{0,30} (?:give|say|make|offer|contain|mention|hold|provide|tell|cover|include|show|state)s? (?:no|"
    r"nothing|little|neither)\b",
    r"\b(?:no|not enough|insufficient|not any|without) (?:\w+ ){0,2}(?:information|data|details|results?|records?|"
    r"answer|context|documents?|match\w*|source)s?"
    r" (?:is |are |was |were |has |have |been )*(?:available|found|provided|given|about|on|to (?:answer|say|tell|"
    r"help|give|provide|reply|conclude|decide|determine)|in the|matching|regarding|for (?:this|that|your))",
    r"^(?:no (?:answer|information|data|results?|idea|clue|relevant \w+)|not (?:found|available|sure|known|possible|"
    r"provided|specified|mentioned)"
    r"(?: in .*)?|unknown|unable to|cannot|can't|could not|couldn't|not able to|won't|i don't know|don't know|dunno|"
    r"beats me)\b",
    r"\b(?:answer|information|question) (?:is|was|can|could)(?:n't| not|not) (?:be )?(?:available|found|known|"
    r"answered|determined|in the)",
    r"\bwe(?:'re| are| can| could| do| will| have| did| regret)?(?:n't|not| not|'t)? ?(?:not |unable |able |cannot |"
    r"to |currently |be |that )*"
    r"(?:help|assist|answer|process|fulfil|respond|accommodate|comply|discuss|comment|disclose|complete|"
    r"proceed)\w* (?:with |to )?"
    r"(?:you|your|this|that|on|request|such|"
    r"it)\b(?<!we help you)(?<!we assist you)(?<!we answer your)(?<!we process your)",
    r"\b(?:this|the|our) (?:assistant|chatbot|bot|service|chat|tool|channel|virtual \w+|helpline|system) "
    r"(?:can't|cannot|can not|can only|only|does not|doesn't|is not|isn't|is unable|will not|won't|has no|never)\b",
    r"\b(?:unable|not able|not possible|impossible) to (?:answer|help|assist|process|provide|respond|complete|"
    r"comply|find|determine|retrieve|give|generate)",
    r"\b(?:not|isn't|aren't) (?:currently )?(?:available|accessible|visible|known) to (?:me|us)\b",
    r"\b(?:this|cet|ce) (?:assistant|bot|chatbot|canal|channel)\b|\bn'(?:est|sont) pas (?:"
    r"proposé|pris en charge|supporté)",
    r"^(?:contenu|content|réponse|answer|texte|text|information|response|résultat|result) (?:non |not |in|"
    r"un)-?(?:disponible|available|trouvée?|found)",
    r"\b(?:off limits|off-limits|no comment)\b",
    r"\b(?:my|our) (?:knowledge|training|database|information|data|sources?|last update) .{0,40}"
    r"(?:cut-?off|ends?|stops?|only|limited|not|n't|up to|until|predate|outdated)",
    r"\b(?:contexte|documents?|textes?|extraits?|sources?|passages?|base de connaissances|"
    r"informations? (?:fournies?|disponibles?)) .{0,20}"
    r"(?:ne |n'|n'en |ne le |n'y )(?:dit|dis|parl|évoqu|abord|contien|mentionn|perme|précis|indiqu|compor|fourni|"
    r"suffi|abord|figur|est|sont|donn|répond|trait)",
    r"\b(?:aucune?|pas(?: assez| suffisamment)? d(?:e|')|sans) ?(?:information|donnée|résultat|réponse|élément|idée|"
    r"document|correspondance|précision)s?\b",
    r"\b(?:informations?|réponse|donnée)s? .{0,15}(?:n'est pas|ne sont pas|n'a pas|n'ont pas|n'a|introuvable|"
    r"indisponible|insuffisant)",
    r"\b(?:nous|on) (?:ne |n')(?:peut|pouvons|sommes|avons|saurions|communiquons|divulguons|traitons|répondons|"
    r"donnons) .{0,40}"
    r"(?:répond|aider|suite|traiter|fournir|communiquer|divulgu|renseign|cette (?:demande|question)|"
    r"votre (?:demande|question)|information|ce type)",
    r"\b(?:cet assistant|ce service|ce canal|ce chat|cet outil|l'assistant|notre assistant|ce robot|le service|"
    r"ce chatbot) (?:ne |n')",
    r"\bil (?:m'|nous )(?:est|était) (?:malheureusement )?(?:impossible|interdit|difficile)",
    r"^(?:aucune?|je ne sais pas|aucune idée|sais pas|j'en sais rien|inconnue?|introuvable|non (?:disponible|trouvé|"
    r"communiqu|renseigné|précisé))\b",
    r"\b(?:impossible|pas possible|pas en mesure|pas autorisé\w*|pas habilité\w*) (?:de |d'|à )",
    r"\b(?:vous|you) (?:n'avez pas|do not have|don't have) (?:le droit|l'autorisation|permission|access|accès|"
    r"the rights?|les droits)",
    r"\bonly (?:the|your|our|an?) [a-z' -]{1,30} (?:can|may|could|is able|has|have|knows?|decides?)\b|"
    r"\bseule?s? (?:le|la|les|votre|un|une|l')[a-zéèà' -]{1,30} (?:peut|peuvent|pourra|sait|"
    r"saura) (?:\w+ )?(?:répondre|dire|renseigner|conseiller|aider|confirmer)",
    r"\b(?:professional secrecy|secret professionnel|confidential|confidentiel(?:le)?s?)\b",
    r"\b(?:is|are|est|sont|reste|restent|remains?) (?:strictly |strictement )?(?:restricted|classified|private|"
    r"not (?:public|disclosed|shared|something)|privée?s?|restreinte?s?|protégée?s?|réservée?s?)\b",
    r"\b(?:we|they|our \w+) (?:do not|don't|never|cannot|can't|won't|will not) (?:\w+ )?(?:disclose|share|discuss|"
    r"comment|reveal|divulge|give out|give any|offer (?:any )?(?:advice|opinions?))\b",
    r"\b(?:nothing|rien) (?:came up|found|matched|was found|turned up|relevant|trouvé|à (?:vous )?(?:dire|proposer|"
    r"afficher)|ne correspond)",
    r"\b(?:sujet|topic|question|thème|subject) (?:too|trop|très|jugé\w*|considered) ",
)
"""What a refusal says, and sometimes an answer."""

APOLOGY = words_of(
    "sorry apologise apologize apologises apologizes apologies apology regret regrets regrettably "
    "unfortunately forgive "
    "excuse afraid désolé désolée désolés désolées navré navrée navrés navrées excuser excuses pardon "
    "regrette regrettons "
    "malheureusement oops whoops oups confus"
)
GENTLE = words_of("unfortunately regrettably malheureusement afraid")
"""What says no more than `sadly`: what follows in the same clause is what counts."""

FILLER = _any(
    r"^(?:hi|hello|hey|dear|bonjour|bonsoir|salut|coucou|cher|chère|thanks?|thank you|merci|thx|cheers|welcome|"
    r"bienvenue)\b(?! to a)(?:,? [^ ]{1,20}){0,3}$|^(?:thank you|thanks|merci) (?:for|de|pour|d')",
    r"^(?:lovely|nice|wonderful|fantastic|super|génial|chouette|sure|of course|certainly|absolutely|great|good|"
    r"excellent|ok|okay|right|well|alright|understood|noted|"
    r"happy to|"
    r"i'd be (?:happy|glad|delighted)|i can help|i'm here|bien sûr|certainement|d'accord|entendu|avec plaisir|"
    r"très bien|parfait|volontiers|"
    r"je peux vous aider|je serais ravi|je suis là|je suis à votre|hmm+|hm|uh|oh|ah)\b.{0,16}$|^(?:i'd be (?:happy|"
    r"glad|delighted)|i can help|happy to|je peux vous aider|je serais ravi)\b.{0,60}$",
    r"\b(?:good|great|interesting|excellent|fair|tricky|bonne|excellente|très bonne|intéressante) question\b",
    r"\b(?:i (?:fully |completely |totally |really |do )?(?:understand|appreciate|hear|realise|realize|know (?:how|"
    r"this|that)|see that|feel|hope|wish)|"
    r"we (?:understand|appreciate|value|strive|regret|thank|will do our|are doing (?:our|everything)|do our best|"
    r"take this)|je comprends|j'entends|je sais|j'espère|je (?:vous|te) remercie|"
    r"nous (?:comprenons|apprécions|espérons|faisons (?:notre|tout|de notre|au plus|le nécessaire)|mettons tout|"
    r"vous remercions|regrettons))\b",
    r"\b(?:your|votre) (?:patience|understanding|feedback|compréhension|satisfaction|indulgence|message|interest|"
    r"intérêt|confiance)\b",
    r"\b(?:inconvenience|inconvénient|désagrément|frustrat\w+|gêne occasionnée|for (?:any|the) (?:confusion|trouble|"
    r"delay|mix-up)|get better soon|wishing you|speedy recovery|bearing with|rétablissement|take care|"
    r"stay safe|"
    r"bon courage|bonne (?:journée|chance|continuation)|have a (?:nice|great|good|lovely|wonderful)|best (?:regards|"
    r"wishes)|cordialement)\b",
    r"^(?:how frustrating|that (?:sounds|must|is) (?:frustrating|annoying|difficult|hard|stressful|tough|awful)|"
    r"it's my (?:fault|mistake|bad)|my (?:bad|mistake|fault)|"
    r"that was (?:my|our)|c'est (?:ma|notre) (?:faute|erreur)|you're right|you are right|vous avez raison|i (?:made|"
    r"misunderstood|misread|was wrong|got (?:that|it) wrong|stand corrected))",
)
"""Politeness and empathy: nothing of the matter."""

OFFER = _any(
    r"\b(?:let me know|feel free|don't hesitate|do not hesitate|n'hésitez pas|if you (?:have|need|want|would|'d|"
    r"like|wish)|"
    r"is there (?:anything|something)|anything else|something else|autre chose|how (?:else )?(?:can|may) i (?:help|"
    r"assist)|what else|"
    r"i(?:'m| am|'d be| would be|'ll be| will be| remain|'m always| can| could|'d| would) (?:still |always |"
    r"more than |also |only |instead |gladly |very )?(?:be )?(?:happy|glad|here|able|available|pleased|offer|help|"
    r"suggest|explain|love|like to)|"
    r"happy to (?:help|assist|answer|explain|discuss|share|offer)|si vous (?:avez|souhaitez|voulez|désirez|"
    r"le souhaitez|préférez)|si tu (?:as|veux|souhaites)|"
    r"y a-t-il|je (?:reste|suis|serais|peux|serai) (?:toutefois |en revanche |cependant |à votre|à ta|disponible|là|"
    r"ravi\w*|heureu\w+|volontiers|par contre|néanmoins |tout de même )|"
    r"je peux (?:en revanche|toutefois|cependant|par contre|vous (?:proposer|aider|orienter|expliquer))|"
    r"puis-je vous aider|que puis-je)\b",
)
"""Offers of other help."""

REDIRECT = _any(
    r"\b(?:contact|consult|reach out|speak (?:to|with)|talk (?:to|with)|turn to|refer|get in touch|ask (?:your|a|an|"
    r"the|someone|our|them|him|her|hr|it)|"
    r"seek|see (?:your|a|an|our|the) (?:doctor|dealer|lawyer|specialist|professional|website|manual|faq|local|gp|"
    r"vet|pharmacist|\w+ (?:page|site|office|team|adviser|advisor))|check (?:with|the|an?|our|online|their|official|"
    r"your|out|back|local|recent|live)|call|phone|e-?mail|write to|visit|look (?:it )?(?:up|at|for|online)|"
    r"search (?:for|online|the)|try (?:again|later|a different|another|asking|rephrasing|search\w*|contacting|"
    r"checking|one of|the official|a search)|"
    r"rephrase|reword|reformulate|come back|wait|(?:re)?start(?:ing)? (?:the|a new|another|"
    r"a fresh)? ?(?:conversation|chat)|"
    r"(?:qualified|licensed|healthcare|legal|financial|mental health|medical|local|competent|"
    r"relevant) (?:professional|authorit|adviser|advisor|expert|doctor|help|department|office|team)\w*|"
    r"hotline|helpline|local services|(?:support|help) is available|available from|customer (?:service|support|"
    r"care)|support team|official (?:website|site|source|channel|page)s?)\b",
    r"\b(?:contacte[rz]|consulte[rz]|adresse[rz]|rapproche[rz]|voir avec|voyez|demande[rz]|appele[rz]|tourne[rz]|"
    r"réessaye[rz]|réessayer|reformule[rz]|cherche[rz]|"
    r"vérifie[rz]|renseigne[rz]|patiente[rz]|revenez|visite[rz]|rende[rz]-vous|se rendre|orienter|rapprocher|"
    r"s'adresser|"
    r"parle[rz]-en|parler (?:à|avec)|prendre contact|joindre|solliciter|sollicite[rz]|référe[rz]|faites appel|"
    r"faire appel|essaye[rz] (?:de nouveau|plus tard|une autre)|"
    r"professionnel\w*|spécialiste|service (?:client|compétent|concerné)|auprès (?:de|d'|du|des)|site officiel|"
    r"sources? officielles?)\b",
)

JUSTIFY = _any(
    r"\b(?:illegal|harmful|dangerous|unethical|offensive|inappropriate|sensitive|private|privacy|confidential|"
    r"copyright\w*|safety|security reasons|policy|policies|"
    r"guidelines|terms of|violat\w+|misus\w+|rights of|integrity|responsib\w+|ethic\w+|personal (?:data|"
    r"information)|discriminat\w+|defamat\w+|hateful|explicit|"
    r"knowledge|training|cut-?off|trained|real[- ]time|up[- ]to[- ]date|live (?:data|feed|connection|information)|"
    r"change[sd]? (?:constantly|frequently|often|daily|quickly|every)|fluctuat\w+|vary|varies|"
    r"depends? on|subjective|personal opinion|preferences?|feelings|neutral|accurate|reliable|misinform\w*|"
    r"speculat\w*|scope|designed|built|limited|purpose|text-based|"
    r"permission|authori[sz]\w+|access|verif\w+ your identity|records?)\b",
    r"\b(?:illéga\w+|dangereu\w+|nuisible|contraire|éthique|offensant\w*|inappropri\w+|sensible|confidentiel\w*|"
    r"vie privée|sécurité|politique|consignes|directives|règles|"
    r"charte|droits? d'auteur|données personnelles|temps réel|à jour|connaissances|formation|entraîn\w+|évolue\w*|"
    r"change\w* (?:sans cesse|souvent|vite|chaque|constamment|régulièrement|tous)|"
    r"variable|dépend\w*|subjecti\w+|opinion|neutre|fiable|périmètre|conçu\w*|limité\w*|accès|autoris\w+|habilit\w+|"
    r"personnelles?)\b",
)
"""Why one does not answer."""

ASKING = _any(
    r"\b(?:please|kindly|could you|can you|would you|will you) (?:please |kindly |also |first )?"
    r"(?:provide|tell|share|specify|clarify|give|send|confirm|describe|explain|elaborate|let me know|indicate|enter|"
    r"say|state|paste|attach|upload|be more|"
    r"rephrase|repeat|type|select|choose|mention|list|include|supply|post|show|expand|add|check which|narrow)\b",
    r"\b(?:i|we)(?:'ll|'d| will| would| do|'re going to| am going to)? (?:just |first |also )?(?:need|require|"
    r"want)(?: to (?:know|have|see|understand|ask|check|confirm)| more| your| the| a (?:bit|little|few)| some|"
    r" further| additional| you to)",
    r"\b(?:envoyez|envoie|collez|colle|donnez|donne|dites|montrez|montre|send|paste|give|show|tell|"
    r"partagez)(?:-\w{1,4})?[ -]"
    r"(?:moi|nous|me|us|it (?:to me|over|here|in)|le texte|the text)\b(?! an? (?:e-?mail|message|letter))",
    r"\b(?:more|further|additional|some) (?:information|details?|context|specifics|precision)\b",
    r"\b(?:what do you mean|which one|be more (?:specific|precise)|it depends|that depends|ça dépend|cela dépend)\b",
    r"\b(?:pouvez-vous|pourriez-vous|peux-tu|pourrais-tu|veuillez|merci de|merci d'|prière de|pourrait-on|"
    r"puis-je (?:savoir|avoir|connaître)|dites-m'?en|dites-moi|dis-moi|donnez-moi|donne-moi|"
    r"indiquez-(?:moi|nous)|précisez|précise|envoyez-(?:moi|nous)|communiquez-(?:moi|nous)|fournissez-(?:moi|"
    r"nous))\b.{0,30}\b(?:préciser|précisez|dire|donner|fournir|indiquer|communiquer|envoyer|transmettre|confirmer|"
    r"expliquer|détailler|décrire|reformuler|"
    r"partager|joindre|plus|votre|ton|ta|quel\w*|le|la|les|si|moi|coller|choisir|sélectionner|clarifier|développer)\b",
    r"\b(?:j'aurais|j'ai|il me faut|il me faudrait|il me manque|nous avons|nous aurions|il nous faut) ?(?:d'abord |"
    r"juste |encore )?(?:besoin|quelques|votre|le |la |des |plus)",
    r"\b(?:plus|davantage|quelques) (?:de |d')?(?:détails?|précisions?|informations?|contexte)\b",
)
"""Asks the asker for something."""

OFFERING_QUESTION = _any(
    r"\b(?:anything else|something else|does that|did that|does this|is that (?:clear|ok|what)|would you like me|"
    r"do you want me|shall i|^should i|want me to|need (?:more|any) help|"
    r"can i help with|how else|what else|autre chose|voulez-vous que|souhaitez-vous que|veux-tu que|"
    r"est-ce que (?:cela|ça)|est-ce clair|puis-je (?:vous|faire)|is there (?:anything|something)|makes? sense|"
    r"right|ok|okay|isn't it|n'est-ce pas|d'accord|how can i (?:help|assist)|how may i|comment puis-je)\b.{0,80}\?$",
)

SOLVING = _any(
    r"\b(?:you(?:'ll| will)? (?:can|could|may|should|need to|must|have to|might|'ll need to)(?! be | have been |"
    r" not )|all you (?:need|have)|here(?:'s| is| are)|the following|instead,? (?:use|try|go|run|set)|"
    r"^to [a-z]+[, ]|^pour [a-zé]+(?:er|ir|re)\b|to do (?:so|this|that|it)|in order to|the (?:way|fix|solution|"
    r"answer|trick|reason) (?:is|to)|"
    r"vous (?:pouvez|devez|pourrez|devrez|trouverez)|tu (?:peux|dois|pourras)|il (?:faut|suffit|vaut mieux|"
    r"convient)|voici|la solution|pour (?:cela|ce faire|y))\b",
    r"(?:^|, )(?:\d{1,2}[.)] |[-•] )?(?:then |first |next |now |please |simply |just |and |d'abord |ensuite |puis |"
    r"alors )*"
    r"(?:go|click|tap|open|select|choose|press|hold (?!on)|use|set|enter|type|run|install|uninstall|restart|reboot|"
    r"turn|remove|add|take|mix|put|log|sign|follow|hit|"
    r"switch|unplug|plug|connect|disconnect|download|delete|clear|update|upgrade|enable|disable|replace|change|"
    r"create|make|bring|keep|avoid|start|reset|reinstall|drag|copy|paste|scroll|"
    r"fill|cut|boil|heat|bake|add|stir|apply|rinse|submit|order|pay|book|cancel|save|close|"
    r"allez|aller|cliquez|appuyez|ouvrez|sélectionnez|choisissez|utilisez|saisissez|tapez|lancez|installez|"
    r"redémarrez|éteignez|allumez|ajoutez|retirez|prenez|mettez|connectez|"
    r"déconnectez|suivez|activez|désactivez|remplacez|créez|téléchargez|supprimez|videz|branchez|débranchez|"
    r"maintenez|remplissez|envoyez|essayez|faites|entrez|passez|réglez|renvoyez|déposez|"
    r"va|clique|ouvre|appuie|choisis|utilise|mets|prends|ajoute)\b",
)
PLACE = _any(
    r"\b(?:click\w*|tap|settings|menu|tab|button|dashboard|intranet|cliquez|onglet|bouton|rubrique|paramètres|"
    r"réglages|espace client|under (?:my |your |the )?(?:account|order|setting|profile|billing|help|security|"
    r"payment|benefit|\w+ tab)s?)\b|\bsous [«\"]| > | → ",
)
"""Where one can do it oneself."""

MEANING = _any(r"\b(?:means?|meaning|stands? for|signifi\w*|veut dire)\b")
"""Questions that are answered by saying what something is, also where that is a refusal."""
REGRETFUL = _any(
    r"\b(?:(?:'d|would) (?:love|like|be happy|be glad) to|wish (?:i|we) (?:could|were able|had)|would if i could|"
    r"(?:aimerais|voudrais|souhaiterais)\b.{0,20}\b(?:aider|répondre|pouvoir|dire))\b",
)
"""What leads to a `but`."""

TASK = _any(
    r"\b(?:translat\w*|paraphras\w*|rephras\w*|reword\w*|rewrit\w*|proofread\w*|correct (?:this|the|my)|compos\w+|"
    r"draft\w*|poem|story|lyrics|haiku|limerick|tweet|caption|slogan|joke|riddle|"
    r"interview questions?|icebreaker|quiz|roleplay|role-play|act as|pretend|wr[io]te|reply to|how (?:do|would|"
    r"should|can|to) (?:i |you |we )?(?:politely )?(?:say|decline|refuse|turn down|apologi[sz]e)|"
    r"what (?:do|should|can) i (?:say|write|reply|answer)|summari[sz]\w*|"
    r"traduis\w*|traduction|traduire|reformule\w*|corrige\w*|rédige\w*|rédaction|écris|écrire|écrivez|compose|poème|"
    r"chanson|blague|devinette|citation|"
    r"résume\w*|comment (?:dire|décliner|refuser|s'excuser|répondre)|que (?:dire|répondre|puis-je répondre))\b"
    r"|^(?:say|dis|dites|reply|answer|réponds|répondez) ",
)
"""Questions whose answer is a text in somebody's voice."""
