"""A tiny text grammar: `[a|b|c]` chooses, `{slot}` inserts; both nest, and a slot's value may hold choices."""
import random
import re

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])(?!(?:uni|use|eu|one))")


def expand(rng: random.Random, text: str, slots: dict | None = None) -> str:
    """All choices made, all slots filled, `a apple` mended to `an apple`."""
    slots = slots or {}
    for _ in range(12):
        filled = SLOT.sub(lambda m: str(slots[m.group(1)]), text)
        chosen = CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), filled)
        if chosen == text:
            break
        text = chosen
    return ARTICLE.sub(r"\1n ", re.sub(r"  +", " ", text)).strip()


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
