"""Policy files: inheritance, origins, and errors that name file, key and allowed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachestack.errors import PolicyError, UnknownTenant
from cachestack.policy import Policy
from cachestack.policy_set import PolicySet

ROOT = Path(__file__).parents[2]


def test_the_default_file_says_what_is_built_in() -> None:
    shipped = PolicySet.load()
    assert shipped.policy("anyone") == Policy()
    written = {row.key for row in shipped.effective("anyone") if row.origin != "built in"}
    assert written == {row.key for row in shipped.effective("anyone")}, "the file must show every key"


def test_the_default_at_the_top_is_the_one_in_the_package() -> None:
    packaged = ROOT / "cachestack/policies/default.yaml"
    assert (ROOT / "policies/default.yaml").read_bytes() == packaged.read_bytes()


@pytest.mark.parametrize("name", ["default", "strict", "support-desk"])
def test_the_examples_are_right(name: str) -> None:
    policies = PolicySet.load(ROOT / f"policies/{name}.yaml")
    assert all(isinstance(policies.policy(tenant), Policy) for tenant in policies.tenants)


def test_inheritance_and_origins() -> None:
    text = """
default: {retention: {ttl_s: 10}, semantic: {accept_from: 0.95}}
tenants:
  a: {semantic: {sensitive: true}}
  b: {inherits: a, retention: {ttl_s: 20}}
"""
    policies = PolicySet.parse(text, "p.yaml")
    b = policies.policy("b")
    assert (b.retention.ttl_s, b.semantic.sensitive, b.semantic.accept_from) == (20, True, 0.95)
    assert policies.policy("a").retention.ttl_s == 10
    origins = {row.key: row.origin for row in policies.effective("b")}
    assert origins["retention.ttl_s"] == "tenants.b in p.yaml"
    assert origins["semantic.sensitive"] == "tenants.a in p.yaml"
    assert origins["semantic.accept_from"] == "default in p.yaml"
    assert origins["semantic.enabled"] == "built in"


def test_unknown_tenants() -> None:
    assert PolicySet.parse("default: {retention: {ttl_s: 7}}", "p").policy("new").retention.ttl_s == 7
    with pytest.raises(UnknownTenant, match=r"'new' has no policy in p.*named there: a"):
        PolicySet.parse("unknown_tenants: refuse\ntenants: {a: {}}", "p").policy("new")
    with pytest.raises(UnknownTenant):
        PolicySet.parse("unknown_tenants: refuse\ntenants: {a: {}}", "p").effective("new")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("defaults: {}", "p: defaults: unknown key; did you mean 'default'"),
        ("default: {semantics: {}}", "p: default.semantics: unknown key; did you mean 'semantic'"),
        ("default: {semantic: {acept_from: 1}}", "semantic.acept_from: unknown key; did you mean 'accept_from'"),
        ("default: {semantic: {accept_from: 1.5}}", "default.semantic.accept_from: .*less than or equal to 1.*1.5"),
        ("default: {semantic: {accept_from: .nan}}", "accept_from: .*"),
        ("default: {semantic: {accept_from: 0.4}}", r"accept_from \(0.4\) must not be below reject_below"),
        ("default: {retention: {ttl_s: 0}}", "default.retention.ttl_s: .*greater than 0"),
        ("tenants: {a: {fallback: {semantic_doubt: ask}}}", "tenants.a.fallback.semantic_doubt: .*'miss' or 'serve'"),
        ("tenants: {a: {fallback: {engine_error: [other_engine]}}}", "fallback.other_engine is not set"),
        ("tenants: {a: {fallback: {engine_error: [raise, retry]}}}", "raise must be the last"),
        ("tenants: {a: {inherits: b}}", "tenants.a.inherits: 'b' is not there; allowed: default, a"),
        ("tenants: {a: {inherits: b}, b: {inherits: a}}", "in a circle: a → b → a"),
        ("tenants: {a: {inherits: a}}", "in a circle"),
        ("tenants: {default: {}}", "set the default policy under 'default:'"),
        ("tenants: [a]", "tenants: must map"),
        ("tenants: {1: {}}", "the name 1 is not text"),
        ("tenants: {a: 3}", "tenants.a: must map sections"),
        ("default: {semantic: 3}", "default.semantic: .*valid dictionary"),
        ("unknown_tenants: maybe", "'maybe' is not allowed; allowed: default, refuse"),
        ("default: {}\ndefault: {}", "'default' is given twice"),
        ("default: {semantic: {sensitive: true, sensitive: false}}", "'sensitive' is given twice"),
        ("tenants: {a: {inherits: [b]}}", r"tenants.a.inherits: \['b'\] is not there"),
        ("tenants: {a: {inherits: null}}", "tenants.a.inherits: nothing is named; allowed: default"),
        ('tenants: {"": {}}', "a name must not be empty"),
        ("tenants: {a: []}", "tenants.a: must map sections"),
        ("tenants: {a: 0}", "tenants.a: must map sections"),
        ("default: []", "default: must map sections"),
        ("default: false", "default: must map sections"),
        ("tenants: ''", "tenants: must map"),
        ("default: {retention: {ttl_s: true}}", "retention.ttl_s: .*no numbers"),
        ("default: {semantic: {num_candidates: true}}", "semantic.num_candidates: .*no numbers"),
        ("default: {semantic: {accept_from: false}}", "semantic.accept_from: .*no numbers"),
        ("? [a]\n: b", "a key must be text"),
        ("? {a: b}\n: b", "not valid YAML"),
        ("[" * 5000, "nested too deeply|not valid YAML"),
        ("a: [", "not valid YAML"),
        ("[]", "must be a mapping"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        PolicySet.parse(text, "p")


def test_a_merge_key_merges_and_may_be_overridden() -> None:
    text = "tenants: {a: &x {semantic: {enabled: false}, decode: {max_new_tokens: 3}}, b: {<<: *x, semantic: {}}}"
    b = PolicySet.parse(text, "p").policy("b")
    assert (b.semantic.enabled, b.decode.max_new_tokens) == (True, 3)


def test_where_unknown_tenants_are_refused_a_forgotten_tenant_is_too() -> None:
    policies = PolicySet.parse("unknown_tenants: refuse\ntenants: {a: {}}", "p")
    with pytest.raises(UnknownTenant, match="'default' has no policy in p"):
        policies.policy("default")
    assert policies.effective("default"), "what all start from can still be shown"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="does not exist"):
        PolicySet.load(tmp_path / "none.yaml")
    with pytest.raises(PolicyError, match="is a folder"):
        PolicySet.load(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="cannot be read"):
        PolicySet.load(tmp_path / "binary.yaml")


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert PolicySet.load(tmp_path / "empty.yaml").policy("x") == Policy()


def test_every_key_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs/policies.md").read_text()
    for row in PolicySet.load().effective("anyone"):
        section, key = row.key.split(".")
        assert f"`{key}`" in text or f"`{section}.{key}`" in text, row.key
