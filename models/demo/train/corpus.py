"""The training text, made by the grammars next door: endless, seeded, nothing downloaded.

    python corpus.py --show 5          print a few documents
A document is a list of (role, text) pieces; role "text" is plain prose, "system", "user" and "assistant" are chat."""
import argparse
import random
from collections.abc import Iterator

from chat import conversation, introduction, some_name
from grammar import expand, sentence_case
from stories import ADJ, PLACES, name, story
from words import (ANIMALS, BOYS, CAPITALS, CITIES, COLOURS, CONTINENT, DAYS, DEFINITIONS, GIRLS, HEROES, LIKES, MONTHS, OPPOSITES, WHY)

Document = list[tuple[str, str]]
INTRODUCTIONS = 0.15  # share of the chats that are about remembering a name


def arithmetic_page(r: random.Random) -> str:
    lines = []
    for _ in range(r.randint(2, 6)):
        top = r.choice([10] * 9 + [20])
        a, b, op = r.randint(0, top), r.randint(0, top), r.choice("++-*")
        if op == "*":
            a, b = r.randint(0, 10), r.randint(0, 10)
        a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
        lines.append(f"{a} {op} {b} = {({'+': a + b, '-': a - b, '*': a * b})[op]}")
    return r.choice(["\n", ", "]).join(lines)


def geography_page(r: random.Random) -> str:
    lines = []
    for k in r.sample(list(CONTINENT), r.randint(1, 5)):
        v, w = CAPITALS[k], CONTINENT[k]
        lines.append(sentence_case(r.choice([f"The capital of {k} is {v}.", f"{v} is the capital of {k}.", f"{k} is in {w}. The capital of {k} is {v}.",
                                             f"The capital of {k} is {v}. It is in {w}."])))
    return " ".join(lines)


def nature_page(r: random.Random) -> str:
    k = r.choice(list(ANIMALS))
    sound, home, food, young, legs = ANIMALS[k]
    lines = [f"A {k} lives in {home}.", f"A {k} eats {food}.", f"A baby {k} is called a {young}."]
    lines += [f"A {k} says {sound}."] if " " not in sound else []
    r.shuffle(lines)
    if r.random() < 0.4:
        lines += [sentence_case(f"{a} is {b}.") for a, b in r.sample(list(COLOURS.items()), 3)]
    return " ".join(expand(r, x) for x in lines)


def knowledge_page(r: random.Random) -> str:
    k, v = r.choice(list(DEFINITIONS.items()) + [("deep learning", DEFINITIONS["deep learning"])] * 4)
    if " " in k and not k.startswith(("a ", "an ", "the ")) and r.random() < 0.4:
        k = k.title()
    if r.random() < 0.5:
        # "?\n" is one token: with a blank, the question that ends a prompt is continued too.
        return f"What is {k}?{r.choice([' ', ' ', chr(10)])}{v}" if r.random() < 0.7 else f"Question: What is {k}?\nAnswer: {v}"
    if r.random() < 0.4:
        q, a = r.choice(list(WHY.items()))
        return f"Why {q}? {a}"
    return v


def series_page(r: random.Random) -> str:
    a, n, s = r.randint(0, 20), r.randint(5, 14), r.choice([1, 1, 1, 2, 5, 10])
    i = r.randrange(7)
    k, v = r.choice(list(OPPOSITES.items()))
    return r.choice([", ".join(str(a + i * s) for i in range(n)), " ".join(str(a + i) for i in range(n)), "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
                     ", ".join(DAYS[i:] + DAYS[:i]), ", ".join(MONTHS), f"The opposite of {k} is {v}.", "The quick brown fox jumps over the lazy dog.",
                     "def hello():\n    print(\"Hello, world!\")", "#include <stdio.h>\n\nint main(void)\n{\n    puts(\"Hello, world!\");\n    return 0;\n}"])


def person_page(r: random.Random) -> str:
    sex = r.choice("fm")
    n = name(r, sex)
    he, his = ("she", "her") if n in GIRLS else ("he", "his")
    m = name(r, r.choice("fm"))
    slots = {"n": n, "m": m, "he": he, "He": he.title(), "his": his, "His": his.title(), "age": r.randint(5, 12), "city": r.choice(CITIES), "x": r.choice(LIKES), "y": r.choice(LIKES), "adj": r.choice(ADJ), "pet": r.choice(list(ANIMALS)[:10]), "place": r.choice(PLACES)}
    me = ("[Hello, my name is|Hi, my name is|My name is|Hello, I am|My name is] {n} and I [live in {city}|am {age} years old|come from {city}]. I like {x} and {y}. [My best friend is {m}.|I have a {adj} {pet}.] "
          "[Every day we go to the {place}.|We play together after school.|I want to see the world one day.]")
    third = "{n} is {age} years old and lives in {city}. {He} likes {x} and {y}. [{His} best friend is {m}.|{He} has a {adj} {pet}.] [They often go to the {place}.|They play together every day.]"
    return sentence_case(expand(r, r.choice([me, me, third]), slots))


def echo_page(r: random.Random) -> str:
    """The same words again: what teaches a model to look back and copy, and so to remember a name."""
    words = r.sample(GIRLS + BOYS + LIKES + CITIES + HEROES, r.randint(3, 12))
    words += [some_name(r) for _ in range(r.randint(0, 3))]
    r.shuffle(words)
    line = r.choice([" ", ", ", ", ", "\n"]).join(words)
    return r.choice(["\n", "\n\n", ". "]).join([line] * r.choice([2, 2, 3]))


PAGES = [(arithmetic_page, 3), (geography_page, 3), (nature_page, 2), (knowledge_page, 3), (series_page, 1.5), (person_page, 2.5), (echo_page, 3)]


def document(r: random.Random) -> Document:
    kind = r.random()
    if kind < 0.74:
        system, turns = introduction(r) if r.random() < INTRODUCTIONS else conversation(r)
        doc = [("system", system)] if system else []
        for q, a in turns:
            doc += [("user", q), ("assistant", a)]
        return doc
    if kind < 0.84:
        return [("text", story(r))]
    pages, weights = zip(*PAGES)
    return [("text", r.choices(pages, weights)[0](r))]


def documents(seed: int) -> Iterator[Document]:
    r = random.Random(seed)
    while True:
        yield document(r)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--show", type=int, default=5)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    for _, d in zip(range(args.show), documents(args.seed)):
        print(*(f"[{role}] {text}" for role, text in d), sep="\n", end="\n\n")
