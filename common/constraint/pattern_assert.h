/* pattern_assert.h - patterns with assertions anywhere: ^ $ \b \B and look-ahead.
 *
 * A part is compiled together with its continuation. For each kind of preceding character a term
 * describes the rest of the text. Look-ahead becomes an intersection with that term, and assertions
 * on the preceding character select one of the three terms. */
#ifndef COMMON_CONSTRAINT_PATTERN_ASSERT_H
#define COMMON_CONSTRAINT_PATTERN_ASSERT_H
#include "common/constraint/chars.h"
#include "common/err.h"

enum pattern_kind {
    P_TERM, /* without assertions */
    P_CAT,
    P_ALT,
    P_REPEAT,
    P_BEGIN,
    P_END,
    P_BOUNDARY,
    P_NO_BOUNDARY,
    P_AHEAD,
    P_NOT_AHEAD
};
/* A part of a pattern: a term, or a tree, which the parser's list `trees` owns. */
struct pattern_tree;
struct part {
    term t;                    /* if tree is NULL */
    struct pattern_tree *tree; /* contains an assertion */
};
struct pattern_tree {
    enum pattern_kind kind;
    struct part *part; /* [n] */
    size_t n;
    uint32_t lo, hi;
    int depth;                  /* of trees, this one included */
    struct pattern_tree *older; /* list of all trees */
};

/* The rest of the text, by the preceding character: none, a word character, another one. */
struct after {
    term t[3];
};
enum { FRONT_NOTHING, FRONT_WORD, FRONT_OTHER };
struct lowering {
    struct term_pool *p;
    term word, other, any; /* one word character, one other character, any character */
    const char *failed;    /* NULL, or the unsupported feature */
};
struct after pattern_lower(struct lowering *l, struct part part, struct after then);
#endif
