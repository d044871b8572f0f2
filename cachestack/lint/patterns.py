"""What values that change from request to request look like, in English and French."""

from __future__ import annotations

import re
from collections.abc import Mapping

WEEKDAYS = (
    "mon(?:day)?|tues?(?:day)?|wed(?:nesday)?|thu(?:rs?(?:day)?)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?"
    "|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
)
MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
    "|janvier|février|fevrier|mars|avril|mai|juin|juillet|août|aout|septembre|octobre|novembre|décembre|decembre"
    "|janv|févr|fevr|avr|juil|déc"
)
_DAY = r"(?:[0-3]?\d(?:st|nd|rd|th|er)?)"
_YEAR = r"(?:(?:19|20)\d\d)"
_LONG_DATE = (
    rf"(?:(?:{WEEKDAYS})\.?,?\s+)?(?:the\s+|le\s+)?"
    rf"(?:{_DAY}\s+(?:of\s+)?(?:{MONTHS})\b(?:\.?,?\s+{_YEAR})?|(?:{MONTHS})\b\.?\s+{_DAY}\b(?:,?\s+{_YEAR})?)"
)
_SHORT_DATE = rf"(?:{_YEAR}[-/.][01]?\d[-/.][0-3]?\d|[0-3]?\d/[0-3]?\d/(?:\d\d)?\d\d|[0-3]?\d[-.][0-3]?\d[-.]{_YEAR})"
_DATE = rf"(?:{_LONG_DATE}|{_SHORT_DATE})"
_ZONE = r"(?:\s?(?:(?:Z|UTC|GMT|CET|CEST|[ECMP][SD]T)\b(?:[+-]\d\d(?::?\d\d)?\b)?|[+-]\d\d:?\d\d\b))?"
_HALF = r"(?:[ap]m\b|[ap]\.m\.)"
_CLOCK = r"(?:[01]?\d|2[0-3])"
_TIME = (
    rf"(?:{_CLOCK}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?:\s?{_HALF})?{_ZONE}"
    rf"|{_CLOCK}\s?h\s?(?:[0-5]\d)?(?!\w)|(?:1[0-2]|0?[1-9])\s?{_HALF})"
)

PATTERNS: Mapping[str, re.Pattern[str]] = {
    "uuid": re.compile(r"(?i)(?<![\w-])[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![\w-])"),
    "timestamp": re.compile(
        rf"(?i)(?<![\w.])(?:{_DATE}(?:T|,?\s+(?:at|à|@|-)?\s*|_){_TIME}"
        r"|20\d\d[01]\d[0-3]\dT?[0-2]\d[0-5]\d(?:[0-5]\dZ?)?|1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?)(?![\w])"
    ),
    "date": re.compile(
        rf"(?i)(?<![\w.])(?:{_DATE}|(?:{MONTHS})\b\.?\s+{_YEAR}|20\d\d[01]\d[0-3]\d|(?:{WEEKDAYS})|(?:{MONTHS}))(?!\w)"
    ),
    "time": re.compile(rf"(?i)(?<![\w:.]){_TIME}"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "identifier": re.compile(
        r"(?x)(?<![\w-])(?:"
        r"(?:req|request|sess|session|msg|message|run|thread|conv|user|usr|trace|span|call|chatcmpl|cus|ord|order|tkn|tok"
        r"|txn|job|task|id)[-_:](?=[\w-]*\d)[\w-]{4,}"
        r"|(?:sk|pk|ghp|gho|xox[abp]|hf|AKIA|eyJ)[\w.-]{12,}"
        r"|(?:0x)?(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,64}"
        r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"
        r"|(?=[\w-]*[A-Za-z])(?=(?:[\w-]*\d){3})[\w-]{16,}"
        r")(?![\w-])"
    ),
    "language": re.compile(r"(?<![\w-])[a-z]{2,3}[-_](?:[A-Z]{2}|[A-Z][a-z]{3})(?![\w-])"),
}
"""In the order in which they are tried."""

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
COUNTER_CUE = re.compile(
    r"(?i)(?:#|№|n°|\bno\.?|\bnum(?:ber|éro|ero)?|\b(?:ticket|turn|tour|case|dossier|order|commande|request|requête|requete"
    r"|message|session|step|étape|etape|attempt|essai|item|row|ligne|line|page|run|batch|lot|question|visit|visite|count"
    r"|invoice|facture|incident|issue|build))\s*(?:number|no\.?|n°|id)?\s*[#:=№-]?\s*\Z"
)
LANGUAGES = re.compile(
    r"(?i)(?<!\w)(?:english|french|german|spanish|italian|portuguese|dutch|polish|russian|chinese|japanese|korean|arabic"
    r"|turkish|swedish|danish|norwegian|finnish|greek|czech|hungarian|romanian|ukrainian|hindi|hebrew|vietnamese|thai"
    r"|français|francais|anglais|allemand|espagnol|italien|portugais|néerlandais|neerlandais|polonais|russe|chinois"
    r"|japonais|coréen|coreen|arabe|turc|suédois|suedois|danois|norvégien|norvegien|finnois|grec|tchèque|hongrois"
    r"|roumain|ukrainien|hébreu|hebreu|vietnamien|deutsch|español|italiano|português|nederlands)(?!\w)"
)
_TITLE = r"(?:(?:Mr|Mrs|Ms|Mme|Mlle|M|Dr|Pr)\.? )?"
_PARTICLE = r"(?:(?:de la|de los|du|des|de|da|dos|di|del|van der|van den|van|von|der|den|el|al|bin|le|la) |d['’])?"
NAME = re.compile(rf"{_TITLE}[A-ZÀ-ÖØ-Þ][\w'’]*(?:[ -]{_PARTICLE}[A-ZÀ-ÖØ-Þ][\w'’]+){{0,3}}")
LOGIN = re.compile(r"[\w.@+-]{2,40}")
NAME_CUE = re.compile(
    r"(?i)\b(?:(?:name|nom|prénom|prenom|user(?:name)?|customer|client|utilisat(?:eur|rice)|patient|employee|helping|help"
    r"|assisting|assistant (?:to|of|for|de)|talking (?:to|with)|speaking (?:to|with)|chatting with|working for"
    r"|parle[sz]? (?:à|avec)|aide[sz]?|hello|hi|dear|bonjour|cher|chère)"
    r"[\"'`*]{0,2}[ \t]*(?:[:=,>]|is|est|named|nommée?)?|(?:mr|mrs|ms|mme|m|dr)\.?|monsieur|madame)"
    r"[ \t]*[\"'`*]{0,2}[ \t]*\Z"
)
KEY_VALUE = re.compile(
    r"(?:^|[\n|;,({<\[])[ \t]*(?:[-*•]\s*)?[\"'`*]{0,2}(?P<key>[^\W\d_][\w .'’/-]{0,31}?)[\"'`*]{0,2}"
    r"\s*[:=]\s*[\"'`*]{0,2}"
    r"(?P<head>[^\n:=|;{}\[\]]{0,60})\Z"
)
XML_VALUE = re.compile(r"<(?P<key>[^\W\d_][\w.-]{0,31})(?:\s[^<>\n]{0,60})?>\s*(?P<head>[^<>\n]{0,60})\Z")
VALUE_END = re.compile(r"[\n|;{}\[\]\"`<]|,\s|\.\s|\.$|\s{2}|\s[-–—]\s|$")
KEY_KINDS: Mapping[str, re.Pattern[str]] = {
    "language": re.compile(r"(?i)\b(?:languages?|langues?|locale|lang|idioma|sprache)\b"),
    "identifier": re.compile(
        r"(?i)\b(?:[\w-]*id|identifi(?:er|ant)|uuid|guid|session|trace|request|requête|correlation|nonce|hash|token|key"
        r"|clé|reference|référence|ref|commit|sha)$"
    ),
    "timestamp": re.compile(r"(?i)\b(?:timestamp|horodatage|epoch)\b"),
    "date": re.compile(r"(?i)\b(?:date|today|day|jour|aujourd'hui|aujourd’hui)\b"),
    "time": re.compile(r"(?i)\b(?:time|now|heure|hour|uptime)$"),
    "counter": re.compile(
        r"(?i)(?:\b(?:ticket|turn|tour|count|counter|compteur|attempt|sequence|seq|number|numéro|no)|n°)$"
    ),
    "user_name": re.compile(
        r"(?i)\b(?:name|nom|prénom|prenom|user|username|utilisat(?:eur|rice)|customer|client|e-?mail|courriel|login)\b"
    ),
    "metadata": re.compile(
        r"(?i)\b(?:location|city|ville|country|pays|region|région|time ?zone|fuseau(?: horaire)?|tz|device|appareil"
        r"|platform|plateforme|os|operating system|browser|navigateur|client version|app version|version|plan|tier"
        r"|offre|department|service|team|équipe|role|rôle|age|âge|gender|weather|météo|position|currency|devise|balance|solde"
        r"|store|magasin|channel|canal|page|url|ip|ip address|adresse ip|status|statut|subscription|abonnement|company"
        r"|entreprise|account|compte|level|niveau|temperature|battery|screen|cwd|directory|branch)\b"
    ),
}
SPEECH_KEYS = re.compile(
    r"(?i)^(?:user|assistant|human|ai|bot|system|question|query|q|a|answer|réponse|reponse|input|output|text|texte|ticket"
    r"|message|context|contexte|document|content|contenu|review|sentence|phrase|passage|label|task|instruction|customer"
    r"|client|utilisateur)$"
)
TEMPLATE_DATE_CUE = re.compile(
    r"(?i)(?:cutting knowledge date|today date|knowledge cutoff|current date)\b[^\n]{0,40}\n?[^\n]{0,30}\Z"
)
STATIC_CUE = re.compile(
    r"(?i)(?:\btoday(?:'s|’s)?(?: date)?|\bcurrent (?:date|time|day)(?: and time)?|\bthe (?:date|time) is|\bnow\b"
    r"|\bas of|\bgenerated (?:at|on)|\bdate du jour|\bnous sommes|\baujourd['’]hui|\bil est|\bheure actuelle"
    r"|\b(?:session|request|trace|correlation|conversation|run)[ _-]?(?:id|identifier)?|\btimestamp)"
    r"[\s:=*_\"'`(-]*(?:is|est|le|:|=)?[\s*_\"'`]*\Z"
)
PLACEHOLDER = re.compile(
    r"(?i)\$?\{{1,2}\s*\$?(?P<name>date|today|current_date|now|time|current_time|timestamp|datetime|uuid|session_id"
    r"|request_id|trace_id|user|user_name|username|name|email|locale|language)\s*\}{1,2}"
)
