"""What in a question or its answer belongs to somebody: secrets and personal data that are not the same for everyone.

What stands in the system prompt, or on the policy's list, is said to everyone who asks under it, and counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cachestack.policy import AdmissionPolicy
from cachestack.semantic.admission.personal import digits_of, find_personal
from cachestack.semantic.admission.secrets import Found, find_secrets


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Kinds, sorted, never values. `where`: `question`, `answer` or both."""

    kinds: tuple[str, ...]
    where: tuple[str, ...]


def secrets_in(question: str, answer: str, system: Sequence[str], public: Sequence[str] = ()) -> Disclosure | None:
    return _found(find_secrets(question), find_secrets(answer), system, public)


def personal_data_in(
    question: str, answer: str, system: Sequence[str], public: Sequence[str] = ()
) -> Disclosure | None:
    return _found(find_personal(question), find_personal(answer), system, public)


def belongs_to_somebody(question: str, system: Sequence[str], policy: AdmissionPolicy) -> bool:
    """Whether a question holds what its policy doesn't keep for all."""
    return (policy.secrets != "keep" and secrets_in(question, "", system, policy.public) is not None) or (
        policy.personal_data != "keep" and personal_data_in(question, "", system, policy.public) is not None
    )


def _found(
    asked: Iterable[Found], said: Iterable[Found], system: Sequence[str], public: Sequence[str]
) -> Disclosure | None:
    in_question = [found for found in asked if not _is_for_all(found, system, public)]
    in_answer = [found for found in said if not _is_for_all(found, system, public)]
    if not in_question and not in_answer:
        return None
    kinds = sorted({found.kind for found in (*in_question, *in_answer)})
    where = [name for name, there in (("question", in_question), ("answer", in_answer)) if there]
    return Disclosure(tuple(kinds), tuple(where))


def _is_for_all(found: Found, system: Sequence[str], public: Sequence[str]) -> bool:
    value = found.value.lower()
    digits = digits_of(found.value) if found.kind in _COMPARED_BY_DIGITS else ""
    for text in system:
        if value in text.lower() or (digits and _national(digits) in digits_of(text)):
            return True
    for pattern in public:
        wanted = pattern.lower()
        if fnmatchcase(value, wanted) or (digits and _national(digits) == _national(digits_of(pattern))):
            return True
    return False


_COMPARED_BY_DIGITS = frozenset({"phone", "payment_card"})


def _national(digits: str) -> str:
    """The last nine: `+33 1 23 45 67 89` and `01 23 45 67 89` are one number."""
    return digits[-9:]
