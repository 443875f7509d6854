/* grammar.h - context-free grammars as people write them, into terms.
 *
 * GBNF, llama.cpp's notation: rules `name ::= ...`, strings, classes, `.`, groups, | * + ? {m,n}.
 *
 * Lark's notation, as llguidance and vLLM take it: rules and terminals, strings with the flag i,
 * regular expressions with the flags i, s and u (pattern.h), ranges "a".."z", groups, [optional],
 * | * + ? ~n ~n..m, aliases, priorities (which change no language and are left out), %ignore,
 * and %import of the module `common`. What %ignore names may stand before each terminal of a rule
 * and at the end. There is no lexer: where Lark would prefer the longest terminal, any is right.
 *
 * A rule that begins with itself is rewritten as a repetition. Left recursion through other rules,
 * Lark's templates and %declare are refused by name. */
#ifndef COMMON_CONSTRAINT_GRAMMAR_H
#define COMMON_CONSTRAINT_GRAMMAR_H
#include "common/constraint/term.h"
#include "common/err.h"

enum { GRAMMAR_MAX_BYTES = 262144, GRAMMAR_MAX_RULES = 4096, GRAMMAR_MAX_DEPTH = 100 };
enum grammar_dialect {
    GRAMMAR_GBNF, /* begins with the rule `root` */
    GRAMMAR_LARK  /* begins with the rule `start` */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming what and on which line. */
term grammar_term(struct term_pool *p, const char *text, size_t n, enum grammar_dialect dialect,
                  struct err *e);
/* Which of the two a text is taken for: GBNF where a line has `name ::=`. */
enum grammar_dialect grammar_guess(const char *text, size_t n);
#endif
