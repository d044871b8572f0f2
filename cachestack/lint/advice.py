"""What to do about a finding, said of the very place."""

from __future__ import annotations

from collections.abc import Mapping

LAST = "at the end of the prompt, for instance as the last line of the user's message"
_MOVE = "Move {value} out of {where}: write it {last}."

ADVICE: Mapping[str, str] = {
    "date": _MOVE,
    "time": _MOVE + " A time that must stand early can be rounded, to the hour or the day.",
    "timestamp": _MOVE + " Where it must stand early, the date alone does, and changes once a day.",
    "uuid": "Take {value} out of {where}: send it beside the prompt. If the model needs it, write it {last}.",
    "identifier": "Take {value} out of {where}: send it beside the prompt. If the model needs it, write it {last}.",
    "counter": _MOVE,
    "user_name": _MOVE + " Each user now has a prefix of their own.",
    "language": _MOVE + " Else every language has a prefix of its own.",
    "metadata": _MOVE,
    "variable": "Put what stays before what varies: {lost} behind {value} in {where} are the same in other prompts; "
    "write them in front of it.",
    "example_order": "Keep the examples (or documents) in {where} in one order for all requests: sort them, or shuffle "
    "them once.",
    "key_order": "Write the JSON in {where} with sorted keys, json.dumps(value, sort_keys=True), each time.",
    "tool_order": "Sort the tools by name before they are sent.",
    "tool_set": "Send the same tools in the same order each time, or those that all requests have first.",
    "white_space": "Make the text around {value} in {where} with one template: the same blanks and line ends.",
    "separator": "Use one separator in {where}: {earlier} and {value} stand at the same place.",
    "double_bos": "The text begins with {value} twice: one is written by the template, one is added. Tokenise with "
    "add_special_tokens=False, or leave it out of the text.",
    "template_date": "The chat template writes the date {value}: give it a fixed one (date_string for most templates). "
    "CacheStack does so by itself.",
    "oversized": "{where} has {lost} more than the budget, and no other prompt has it: send the parts of it that the "
    "question needs, or summarise it.",
    "repeated": "Send the text in {where} once: it stands in the prompt already.",
    "short_prefix": "The stable beginning is shorter than what is kept ({limit}). Put examples or stable context "
    "into it, or leave it: little is lost.",
}


def advise(kind: str, **facts: str) -> str:
    """`facts`: value, earlier, where, lost, limit, as far as the kind's text asks for them."""
    return ADVICE[kind].format(
        **({"value": "it", "earlier": "", "where": "", "lost": "", "limit": "", "last": LAST} | facts)
    )
