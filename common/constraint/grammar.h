/* grammar.h - compiles context-free grammars to terms.
 *
 * GBNF, llama.cpp's notation: rules `name ::= ...`, strings, classes, `.`, groups, | * + ? {m,n}.
 *
 * Lark's notation, as in llguidance and vLLM: rules and terminals, strings with the flag i, regular
 * expressions with the flags i, s and u (pattern.h), ranges "a".."z", groups, [optional], | * + ?
 * ~n ~n..m, aliases, priorities (ignored, since they do not change the language), %ignore, and
 * %import of the module `common`; llguidance's first line `%llguidance {}`, and its attributes
 * `capture` of rules, which has no effect, and `suffix`: the rule's text ends with the first one.
 * Ignored text is allowed before each terminal of a rule and at the end. There is no lexer: where
 * Lark would choose the longest terminal, any match is accepted.
 *
 * Direct left recursion is rewritten as a repetition. Indirect left recursion, Lark's templates,
 * %declare, and llguidance's other directives and attributes are rejected with an error that names
 * them. */
#ifndef COMMON_CONSTRAINT_GRAMMAR_H
#define COMMON_CONSTRAINT_GRAMMAR_H
#include "common/constraint/chars.h"
#include "common/err.h"

enum { GRAMMAR_MAX_BYTES = 262144, GRAMMAR_MAX_RULES = 4096, GRAMMAR_MAX_DEPTH = 100 };
enum grammar_dialect {
    GRAMMAR_GBNF, /* starts at the rule `root` */
    GRAMMAR_LARK  /* starts at the rule `start` */
};
/* TERM_NONE with `e` set: ERR_VALIDATION, naming the fault and its line. */
term grammar_term(struct term_pool *p, const char *text, size_t n, enum grammar_dialect dialect,
                  struct err *e);
/* As a part of a larger term, in this spelling: the caller closes the whole with term_close(). */
term grammar_part(struct term_pool *p, const char *text, size_t n, enum grammar_dialect dialect,
                  enum spelling how, struct err *e);
/* Guesses the notation of a text: GBNF if a line has `name ::=`. */
enum grammar_dialect grammar_guess(const char *text, size_t n);
#endif
