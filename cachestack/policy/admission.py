"""The section of a policy that says which answers are kept, and for whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cachestack.policy.section import Section

Kept = Literal["keep", "refuse", "scope_to_user"]
AnswerKind = Literal["refusal", "error", "cut_off", "placeholder", "asks_back"]


class AdmissionPolicy(Section):
    """What may be kept. A request without a user has no scope of its own: there, `scope_to_user` refuses."""

    refused: frozenset[AnswerKind] = frozenset({"refusal", "error", "cut_off", "placeholder", "asks_back"})
    """Kinds of answers that are not kept, by their text."""

    secrets: Kept = "refuse"
    """Questions and answers with keys, tokens or passwords in them: keep, refuse, or keep for the one user only."""

    personal_data: Kept = "scope_to_user"
    """The same for cards, accounts, national numbers, e-mail addresses, telephones and the like."""

    public: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """What is nobody's: addresses and numbers, `*` for any characters (`*@acme.com`). What stands in the system prompt
    is public to whoever asks under it, and need not be listed."""

    confirmations: Annotated[int, Field(ge=0, le=10)] = 0
    """How many other users must have got the same answer to the same question before it serves all; until then it
    serves the user who asked. What a request without a user brings is not kept then."""

    @property
    def may_scope_to_user(self) -> bool:
        """Whether entries of one user may exist beside those that all are served from."""
        return "scope_to_user" in (self.secrets, self.personal_data) or self.confirmations > 0
