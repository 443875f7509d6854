#!/usr/bin/env python3
"""Prints unicode_ranges.inc: the general categories as Hugging Face `tokenizers` sees them.

Its regular expression engine (Oniguruma) carries its own Unicode tables, newer than those of PCRE2
and utf8proc here; its punctuation class (another library) is older. Both are read off by asking the
library about every code point. Needs `pip install tokenizers`; takes a minute or two.

    python3 common/tokenizer/unicode_ranges.py > common/tokenizer/unicode_ranges.inc
"""
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def category_of():
    text = "".join(map(chr, POINTS))
    found = {}
    for number, name in enumerate(CATEGORIES[1:], 1):
        rest = bytearray(len(text))
        split = pre_tokenizers.Split(Regex(r"\p{%s}+" % name), "removed")
        for _, (start, end) in split.pre_tokenize_str(text):
            rest[start:end] = b"\1" * (end - start)
        found.update((POINTS[i], number) for i in range(len(text)) if not rest[i])
    return found


def punctuation():
    """Code points that Punctuation and BertPreTokenizer split off."""
    text = "\u4e00".join(map(chr, POINTS))
    pieces = pre_tokenizers.Punctuation("isolated").pre_tokenize_str(text)
    return {ord(p) for p, (start, end) in pieces if end - start == 1 and p != "\u4e00"}


def ranges(key):
    last = None
    for c in range(0x110000):
        k = key(c)
        if k != last:
            yield c, k
            last = k


def show(values):
    for i in range(0, len(values), 9):
        print("    " + " ".join("0x%07x," % v for v in values[i : i + 9]))


def main():
    cat = category_of()
    punct = punctuation()
    print("/* Made by unicode_ranges.py. A range goes on to the start of the next. */")
    print("/* start << 6 | newer than Unicode 14 << 5 | category */")
    print("static const uint32_t category_ranges[] = {")
    new = lambda c: cat.get(c, 0) != 0 and unicodedata.category(chr(c)) == "Cn"
    show([c << 6 | n << 5 | k for c, (n, k) in ranges(lambda c: (new(c), cat.get(c, 0)))])
    print("};")
    print("/* start << 1 | 1: punctuation that the old tables do not know, or know although it is none */")
    print("static const uint32_t old_punct_ranges[] = {")
    ascii_p = set(map(ord, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))
    is_p = lambda c: c in ascii_p or CATEGORIES[cat.get(c, 0)][0] == "P"
    show([c << 1 | k for c, k in ranges(lambda c: is_p(c) != (c in punct))])
    print("};")


assert unicodedata.unidata_version.startswith("14."), "run with Python 3.11 (PCRE2 10.42 has Unicode 14)"
main()
