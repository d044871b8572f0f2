"""The language of short questions typed in haste, and what may then be matched by meaning."""

from __future__ import annotations

import pytest

from cachestack.decisions import Reason
from cachestack.policy import SemanticPolicy
from cachestack.semantic.language import _identify, by_meaning_refusal, identify

ENGLISH = """
how do i renew my visa
whats the capital of chad
wat r the opening hours
i cant log in
renew visa
cancel order
opening hours sunday
forgot pin
exchange rate euro dollar
book me a table for two in Nice
Could you tell me who wrote "Les Misérables"?
why is my café order late?
how do you say good night in French
2 + 2 = ?  what is it
please translate bonjour
git undo last commit
""".strip().splitlines()

FRENCH = """
comment renouveler mon visa
où est mon colis ?
ou est mon colis
cest quoi un pret immobilier
mdp oublie
ma carte est bloquee
prix abonnement
horaires magasin dimanche
je veux annuler
virement refusé
puis-je payer par chèque ?
taux de change euro dollar
delai de remboursement
qu'est-ce qu'un IBAN
traduire bonjour en anglais
combien coute la livraison a Paris
""".strip().splitlines()

OTHERS = {
    "es": ["¿cómo renuevo mi pasaporte?", "cuanto cuesta el envio a madrid", "quiero cancelar mi pedido"],
    "de": ["wie kann ich mein konto kündigen", "wo ist meine bestellung", "was kostet der versand nach berlin"],
    "pt": ["onde está meu pedido", "quero cancelar minha assinatura", "voce pode me ajudar com a fatura"],
    "it": ["dove è il mio ordine", "voglio annullare il mio abbonamento", "la mia carta non funziona"],
    "nl": ["waar is mijn bestelling", "ik wil mijn abonnement opzeggen", "wat kost verzending naar gent"],
    "zh": ["如何重置密码"],
    "ja": ["パスワードをリセットするには"],
    "ko": ["비밀번호를 어떻게 재설정하나요"],
    "ar": ["كيف أعيد تعيين كلمة المرور"],
    "ru": ["как сбросить пароль"],
    "el": ["πώς επαναφέρω τον κωδικό"],
    "hi": ["पासवर्ड कैसे रीसेट करें"],
}
SMALL = """
jak zresetować hasło
hur återställer jag mitt lösenord
hvordan nulstiller jeg min adgangskode
şifremi nasıl sıfırlarım
bagaimana cara mengatur ulang kata sandi
restablecer contraseña
öffnungszeiten am sonntag
orari del negozio
""".strip().splitlines()


@pytest.mark.parametrize("text", ENGLISH)
def test_english(text: str) -> None:
    assert identify(text) == "en"
    assert identify(text.upper()) == "en"


@pytest.mark.parametrize("text", FRENCH)
def test_french(text: str) -> None:
    assert identify(text) == "fr"


@pytest.mark.parametrize(("language", "text"), [(name, text) for name, texts in OTHERS.items() for text in texts])
def test_other_languages(language: str, text: str) -> None:
    assert identify(text) == language


@pytest.mark.parametrize("text", SMALL)
def test_what_is_not_known_is_not_called_english_or_french(text: str) -> None:
    assert identify(text) not in ("en", "fr")


@pytest.mark.parametrize("text", ["", " ", "42", "?!", "wifi?", "404", "x = y", "🙂", "ok", "`print(the)`"])
def test_too_little_to_tell(text: str) -> None:
    assert identify(text) is None


EN = frozenset({"en"})
MANY = frozenset({"en", "fr", "de", "es"})


@pytest.mark.parametrize(
    ("language", "encoder", "values", "reason"),
    [
        ("en", EN, {}, None),
        ("fr", EN, {}, Reason.ENCODER_LANGUAGE),
        ("fr", EN, {"languages": ["fr"]}, None),
        ("en", EN, {"languages": ["fr"]}, Reason.ENCODER_LANGUAGE),
        ("fr", EN, {"languages": "any"}, None),
        ("fr", MANY, {}, None),
        ("de", EN, {}, Reason.ENCODER_LANGUAGE),
        ("de", MANY, {}, Reason.EXACT_ONLY),
        ("de", MANY, {"unguarded_languages": "serve"}, None),
        ("de", EN, {"languages": "any"}, Reason.EXACT_ONLY),
        ("de", EN, {"languages": ["de"], "unguarded_languages": "serve"}, None),
        ("fr", frozenset(), {}, None),
        (None, EN, {}, None),
    ],
)
def test_what_may_be_matched_by_meaning(
    language: str | None, encoder: frozenset[str], values: dict[str, object], reason: Reason | None
) -> None:
    policy = SemanticPolicy.model_validate(values)
    assert by_meaning_refusal(language, encoder, policy) is reason


def test_a_long_text_is_not_remembered_whole() -> None:
    """Thousands of texts of a megabyte would be: only what is read counts."""
    _identify.cache_clear()
    beginning = "How do I reset my password? " * 30
    assert [identify(beginning + end) for end in ("one", "two" * 100_000)] == ["en", "en"]
    assert _identify.cache_info().currsize == 1
