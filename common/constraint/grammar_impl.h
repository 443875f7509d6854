/* grammar_impl.h - private: the syntax tree of a grammar, shared by the two parsers and the
 * compiler. */
#ifndef COMMON_CONSTRAINT_GRAMMAR_IMPL_H
#define COMMON_CONSTRAINT_GRAMMAR_IMPL_H
#include "common/constraint/chars.h"
#include "common/constraint/grammar.h"
#include "common/constraint/pattern.h"

/* Index of a node; 0: none. */
typedef uint32_t gnode;
enum gnode_kind { G_TERM, G_REF, G_CAT, G_ALT, G_REPEAT, G_UNTIL };
struct grammar_node {
    enum gnode_kind kind;
    gnode kid, next; /* its first child; its next sibling */
    term t;          /* G_TERM; of G_UNTIL what ends it */
    uint32_t rule;   /* G_REF */
    uint32_t lo, hi; /* G_REPEAT */
};
struct grammar_rule {
    const char *name; /* points into the text */
    size_t n_name;
    gnode body;      /* 0: undefined */
    bool nullable;   /* matches the empty text */
    uint8_t visited; /* state of the search for left recursion */
    term t;
};
struct grammar {
    struct term_pool *p;
    const char *text;
    size_t n, at;
    struct grammar_node *node;
    uint32_t n_nodes, cap_nodes;
    struct grammar_rule *rule; /* [GRAMMAR_MAX_RULES] */
    uint32_t n_rules;
    enum spelling how;
    int depth;
    bool failed;
    struct err *e;
    struct chars set;
    /* Lark */
    bool in_terminal; /* the current body is that of a terminal */
    gnode ignore;     /* G_REPEAT of %ignore's terminals; 0: none */
};

/* Always returns 0. The first error is kept. */
gnode grammar_fail(struct grammar *g, const char *what, const char *name, size_t n);
static inline bool grammar_more(const struct grammar *g) { return g->at < g->n && !g->failed; }
static inline char grammar_peek(const struct grammar *g)
{
    return g->at < g->n ? g->text[g->at] : '\0';
}
/* Skips `s`. False: the text goes on with something else. */
bool grammar_take(struct grammar *g, const char *s);
/* Parses `+`, `?` or `*` into bounds, which must be 0 and TERM_UNBOUNDED before. False: none. */
bool grammar_quantifier(struct grammar *g, uint32_t *lo, uint32_t *hi);
/* The index of the rule with this name, created if missing. */
uint32_t grammar_rule(struct grammar *g, const char *name, size_t n);
bool grammar_number(struct grammar *g, uint32_t *v); /* decimal digits; false: none */

gnode grammar_of_term(struct grammar *g, term t);
gnode grammar_ref(struct grammar *g, uint32_t rule);
gnode grammar_list(struct grammar *g, enum gnode_kind kind); /* an empty G_CAT or G_ALT */
void grammar_append(struct grammar *g, gnode list, gnode *last, gnode kid);
/* A text of `of` and then one of `suffix`, which does not end earlier in it. `suffix` has no empty
 * text. */
gnode grammar_until(struct grammar *g, gnode of, term suffix);
gnode grammar_repeat(struct grammar *g, gnode of, uint32_t lo, uint32_t hi);
/* Returns the index of the start rule, `root` or `start`; -1: failed. */
int grammar_parse_gbnf(struct grammar *g);
int grammar_parse_lark(struct grammar *g);
/* Decodes the escape after a backslash: \n \t \r \xHH \uHHHH \UHHHHHHHH, or the character
 * itself. */
uint32_t grammar_escape(struct grammar *g);
term grammar_char(struct grammar *g, uint32_t first, uint32_t last);
#endif
