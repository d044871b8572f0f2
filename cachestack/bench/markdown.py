"""A report's document as the tables of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "whole_ms": "whole prompt each time",
    "recipe_ms": "by hand: keep, suffix, crop",
    "single_ms": "CacheStack, one by one",
    "packed_ms": "CacheStack, packed",
    "floor_ms": "the suffix alone (floor)",
    "peer_ms": "llama.cpp, prefix kept",
}
RATIOS = {
    "single_over_floor": "one by one over the floor",
    "whole_over_packed": "whole prompt over packed",
    "whole_over_single": "whole prompt over one by one",
    "recipe_over_single": "by hand over one by one",
    "floor_over_packed": "the floor over packed",
    "peer_over_packed": "llama.cpp over packed",
    "peer_over_single": "llama.cpp over one by one",
}


def as_markdown(document: Mapping[str, Any]) -> str:
    """The tables, the machine under them."""
    prefixes = document["prefix"]
    head = [f"P = {tokens}" for tokens in prefixes]
    figures = list(prefixes.values())
    times = [
        [title, *(f"{of[key]:.1f}" for of in figures)]
        for key, title in COLUMNS.items()
        if all(key in f for f in figures)
    ]
    ratios = [
        [title, *(as_ratio(of["ratios"][key]) for of in figures)]
        for key, title in RATIOS.items()
        if all(key in f["ratios"] for f in figures)
    ]
    ratios.append(["ceiling by tokens, (P+S)/S", *(f"{of['ceiling']:.1f}" for of in figures)])
    targets = [
        [
            target["name"],
            f"{target['value']:.3g}",
            f"{target['sense']} {target['bound']:g}",
            "yes" if target["met"] else "**no**",
        ]
        for target in document["targets"]
    ]
    overheads = {
        "a prompt without a boundary": document["miss_overhead"],
        "the same, kept as a conversation's beginning": document["miss_overhead_keeping_all"],
        **{
            f"the first run with a prefix of {tokens} tokens": ratio
            for tokens, ratio in document["cold_publish_by_length"].items()
        },
    }
    parts = [
        markdown_table(["ms an item", *head], times),
        markdown_table(["ratio: median (interval)", *head], ratios),
        markdown_table(
            ["over one whole pass: median (interval)", ""], [[k, as_ratio(r)] for k, r in overheads.items()]
        ),
        *([markdown_table(["target", "measured", "aim", "met"], targets)] if targets else []),
        "\n".join(notes(document)),
    ]
    return "\n\n".join(parts) + "\n"


def as_ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures are of, in sentences."""
    machine, fork, interval = document["machine"], document["fork"], document["interval"]
    reps = [of["reps"] for of in document["prefix"].values()]
    packs = " and ".join(str(of["pack_items"]) for of in document["prefix"].values())
    flags = ", ".join(f"{name}={value}" for name, value in machine["flags"].items()) or "no flags"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    copied = fork["copied_bytes"]
    found = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['os']}; "
        f"{machine['model']} in {machine['dtype']}, attention {machine['attention']}, {flags}; {versions}.",
        f"Suffixes of {document['suffix_tokens']} tokens, packs of {packs}; {max(reps)} repetitions; intervals from "
        f"{interval['kind']}, confidence {interval['coverage']:.1%}.",
        f"Of the {fork['prefix_bytes']:,} bytes of the longest prefix, a fork copies {copied['fork']:,}, the pass of "
        f"one suffix {copied['single']:,}, of a pack {copied['packed']:,}.",
        f"Results: {agreement_line(document)}.",
    ]
    if (peer := document.get("peer")) is not None:
        same = [of["agreement"]["peer_same_argmax"] for of in document["prefix"].values()]
        found.append(
            f"{peer['name']}: {peer['version']}, weights {peer['weights']}, {peer['threads']} threads, "
            f"flash attention {'on' if peer['flash_attention'] else 'off'}; {peer['way']}; with its weights the "
            f"largest logit is ours for {min(same):.0%} of the tickets."
        )
    if machine["busy"]:
        found.append(
            f"The machine was busy (load average {machine['load_average']}): these figures are no measurement."
        )
    if document["quick"]:
        found.append("A quick run: it shows that the benchmark works, and is no measurement.")
    return found


def agreement_line(document: Mapping[str, Any]) -> str:
    every = [of["agreement"] for of in document["prefix"].values()]
    largest = max(difference for of in every for difference in of["max_difference"].values())
    compared = sum(of["compared"] for of in every)
    equal = "equal bit for bit" if all(of["cold_equals_warm"] for of in every) else "NOT equal"
    best = "the same" if all(of["same_argmax"] for of in every) else "NOT always the same"
    return (
        f"{compared} comparisons; logits differ from the whole prompt's by {largest:.1e} at most, the largest one is "
        f"{best}, and those of a first run and of a hit are {equal}"
    )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """First column to the left, the others to the right."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
