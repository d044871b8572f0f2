"""What the semantic layer asks for: which text is embedded, and behind which wall it is looked up."""

from __future__ import annotations

from cachestack.effects import Embed, Embedding, FindExact, Search
from cachestack.keys import contract_of
from cachestack.policy import Policy
from cachestack.requests import Message, Request
from cachestack.semantic.layer import Asked, partition_of, semantic_lookup

QUESTION = "Where is my parcel?"


def effects(**who: str) -> tuple[FindExact, Embed, Search]:
    """Of a look-up that finds nothing until it is left."""
    request = Request((Message("system", "Be brief."), Message("user", QUESTION)), model="m", **who)
    policy = Policy.model_validate({"semantic": {"walls": ["user"]}})
    asked = Asked(request, contract_of(request, "m"), partition_of(request, policy.semantic))
    lookup = semantic_lookup(asked, policy, frozenset({"en"}), 0.0)
    exact = next(lookup)
    embed = lookup.send(None)
    search = lookup.send(Embedding(b"\0" * 8, "e"))
    lookup.close()
    assert isinstance(exact, FindExact)
    assert isinstance(embed, Embed)
    assert isinstance(search, Search)
    return exact, embed, search


def test_whoever_asks_the_question_alone_is_embedded_and_the_rest_is_a_wall() -> None:
    """Trap 4. A name in the text would only lower a similarity, and be compared with the words of the question."""
    mine, theirs, hers = effects(tenant="a", user="u"), effects(tenant="b", user="u"), effects(tenant="a", user="v")
    assert [embed.text for _, embed, _ in (mine, theirs, hers)] == [QUESTION] * 3
    assert len({search.partition for _, _, search in (mine, theirs, hers)}) == 3
    assert len({exact.exact for exact, _, _ in (mine, theirs, hers)}) == 3
    assert len({search.contract.digest for _, _, search in (mine, theirs, hers)}) == 1
