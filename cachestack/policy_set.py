"""Policy files: loading, inheritance between tenants, and where each effective value comes from.

A file has three keys, all optional::

    unknown_tenants: default      # or: refuse
    default: {...sections...}     # what every tenant starts from
    tenants:
      acme: {inherits: default, semantic: {...}, ...}
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cachestack.errors import PolicyError, UnknownTenant
from cachestack.policy import Policy

DEFAULT = "default"
_TOP_KEYS = ("unknown_tenants", "default", "tenants")
_UNKNOWN = ("default", "refuse")
_SETS = ("walls", "languages", "refused", "stable_tags")


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One value of a tenant's policy; `origin` says which part of which file set it."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies of one file, checked. `PolicySet.load()` gives the one that ships with the package."""

    source: str
    unknown_tenants: str
    _policies: Mapping[str, Policy]
    _origins: Mapping[str, Mapping[str, str]]

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that the file names."""
        return tuple(sorted(set(self._policies) - {DEFAULT}))

    def policy(self, tenant: str) -> Policy:
        """The tenant's policy. Raises UnknownTenant if the file refuses tenants it does not name.

        It never names `default`: there a caller who forgot to say whose request it is gets an error, not a share in
        a cache of all who forgot.
        """
        if tenant == DEFAULT and self.unknown_tenants == "refuse":
            raise self._unknown(tenant)
        return self._policies[self._name(tenant)]

    def effective(self, tenant: str) -> tuple[EffectiveValue, ...]:
        """Every value of the tenant's policy, in order, each with its origin."""
        name = self._name(tenant)
        origins = self._origins[name]
        return tuple(
            EffectiveValue(key, value, origins.get(key, "built in"))
            for key, value in _flatten(self._policies[name].model_dump(mode="json"))
        )

    def _name(self, tenant: str) -> str:
        if tenant in self._policies:
            return tenant
        if self.unknown_tenants == "refuse":
            raise self._unknown(tenant)
        return DEFAULT

    def _unknown(self, tenant: str) -> UnknownTenant:
        known = ", ".join(self.tenants) or "none"
        return UnknownTenant(
            f"tenant {tenant!r} has no policy in {self.source} (named there: {known}), and unknown_tenants is "
            f"'refuse'; name one of them, add it under 'tenants:', or set unknown_tenants: default"
        )

    @staticmethod
    def load(path: str | Path | None = None) -> PolicySet:
        """Load a policy file. None or `"default"` is the one in the package.

        Raises PolicyError that names file, key and allowed values.
        """
        if path is None or str(path) == DEFAULT:
            text = resources.files("cachestack").joinpath("policies/default.yaml").read_text(encoding="utf-8")
            return PolicySet.parse(text, "the built-in default policy")
        file = Path(path)
        if file.is_dir():
            raise PolicyError(f"{file} is a folder; give one policy file (for example {file / 'default.yaml'})")
        try:
            text = file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise PolicyError(f"policy file {file} does not exist; give a path, or 'default'") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"policy file {file} cannot be read: {error}") from error
        return PolicySet.parse(text, str(file))

    @staticmethod
    def of_one(policy: Policy, source: str) -> PolicySet:
        """One policy for every tenant."""
        return PolicySet(source, DEFAULT, {DEFAULT: policy}, {DEFAULT: {}})

    @staticmethod
    def parse(text: str, source: str) -> PolicySet:
        """As `load`, from text; `source` is named in errors."""
        try:
            document = yaml.load(text, Loader=_StrictLoader)  # nosec B506: a safe loader, and stricter
        except yaml.YAMLError as error:
            problem = " ".join(str(error).split()).replace('"<unicode string>", ', "")
            raise PolicyError(f"{source}: not valid YAML: {problem}") from error
        except RecursionError as error:
            raise PolicyError(f"{source}: nested too deeply") from error
        document = {} if document is None else document
        if not isinstance(document, dict):
            raise PolicyError(f"{source}: must be a mapping with the keys {', '.join(_TOP_KEYS)}")
        for key in document:
            if key not in _TOP_KEYS:
                raise PolicyError(_unknown_key(source, str(key), str(key), _TOP_KEYS))
        unknown = document.get("unknown_tenants", DEFAULT)
        if unknown not in _UNKNOWN:
            raise PolicyError(f"{source}: unknown_tenants: {unknown!r} is not allowed; allowed: {', '.join(_UNKNOWN)}")
        raw = _sections_by_tenant(document, source)
        policies: dict[str, Policy] = {}
        origins: dict[str, dict[str, str]] = {}
        for name in raw:
            merged, origin = _resolve(name, raw, source)
            policies[name] = _checked(merged, name, origin, source)
            origins[name] = origin
        return PolicySet(source, unknown, policies, origins)


def _sections_by_tenant(document: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    raw = {DEFAULT: _or_empty(document.get("default"))}
    tenants = _or_empty(document.get("tenants"))
    if not isinstance(tenants, dict):
        raise PolicyError(f"{source}: tenants: must map tenant names to policies")
    for name, body in tenants.items():
        if not isinstance(name, str):
            raise PolicyError(f"{source}: tenants: the name {name!r} is not text; put it in quotes")
        if not name:
            raise PolicyError(f"{source}: tenants: a name must not be empty")
        if name == DEFAULT:
            raise PolicyError(f"{source}: tenants.default: set the default policy under 'default:', at the top")
        raw[name] = _or_empty(body)
    for name, body in raw.items():
        if not isinstance(body, dict):
            raise PolicyError(f"{source}: {_place(name)}: must map sections to values")
    return raw


def _or_empty(value: Any) -> Any:
    """Nothing written (`acme:`) is an empty mapping; anything else that is empty is a mistake."""
    return {} if value is None else value


def _resolve(
    name: str, raw: Mapping[str, dict[str, Any]], source: str, below: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """The merged sections of a tenant, parents first, and the origin of each value."""
    if name in below:
        raise PolicyError(f"{source}: inheritance goes in a circle: {' → '.join((*below, name))}")
    body = dict(raw[name])
    parent = body.pop("inherits", None if name == DEFAULT else DEFAULT)
    if parent is None and name != DEFAULT:
        raise PolicyError(f"{source}: {_place(name)}.inherits: nothing is named; allowed: {', '.join(raw)}")
    if name == DEFAULT and parent is not None:
        raise PolicyError(f"{source}: default.inherits: the default policy inherits from nothing")
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    if parent is not None:
        if not isinstance(parent, str) or parent not in raw:
            raise PolicyError(f"{source}: {_place(name)}.inherits: {parent!r} is not there; allowed: {', '.join(raw)}")
        merged, origin = _resolve(parent, raw, source, (*below, name))
    for section, values in body.items():
        if isinstance(values, dict):
            merged[section] = {**merged.get(section, {}), **values}
            origin.update({f"{section}.{key}": f"{_place(name)} in {source}" for key in values})
        elif values is not None:
            merged[section] = values
    return merged, origin


def _checked(merged: Mapping[str, Any], name: str, origin: Mapping[str, str], source: str) -> Policy:
    try:
        return Policy.model_validate(merged)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            location = [str(part) for part in item["loc"]]
            key = ".".join(location)
            place = origin.get(".".join(location[:2]), f"{_place(name)} in {source}").split(" in ")[0]
            if item["type"] == "extra_forbidden":
                problems.append(_unknown_key(source, f"{place}.{key}", location[-1], _allowed_keys(location)))
            else:
                problems.append(f"{source}: {place}.{key}: {item['msg']} (given: {item['input']!r})")
        raise PolicyError("\n".join(problems)) from None


def _allowed_keys(location: list[str]) -> tuple[str, ...]:
    if len(location) == 1:
        return (*Policy.model_fields, "inherits")
    section = Policy.model_fields[location[0]].annotation
    return tuple(getattr(section, "model_fields", {}))


def _unknown_key(source: str, place: str, key: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{source}: {place}: unknown key{hint} Allowed: {', '.join(allowed)}".replace("key Allowed", "key. Allowed")


def _place(name: str) -> str:
    return DEFAULT if name == DEFAULT else f"tenants.{name}"


def _flatten(values: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and not above:  # a section; a mapping within one is a value
            rows += _flatten(value, f"{above}{key}.")
        else:
            rows.append((f"{above}{key}", sorted(value) if key in _SETS and isinstance(value, list) else value))
    return rows


_MERGE = "tag:yaml.org,2002:merge"


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key given twice is an error, not a silent loss of the first."""


def _mapping_without_duplicates(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, f"a key must be text, not {key}", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)
