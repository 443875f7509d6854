/* pattern_assert.h - patterns whose parts look at what stands around them: ^ $ \b \B and
 * look-ahead, anywhere.
 *
 * A part is lowered together with what follows it: for each kind of character that may stand in
 * front, one term says how the text goes on to its end. What looks ahead is then an intersection
 * with that term, and what looks back chooses one of the three. */
#ifndef COMMON_CONSTRAINT_PATTERN_ASSERT_H
#define COMMON_CONSTRAINT_PATTERN_ASSERT_H
#include "common/constraint/chars.h"
#include "common/err.h"

enum pattern_kind {
    P_TERM, /* looks at nothing around it */
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
/* A part of a pattern: a term, or a tree. Trees belong to the parser's list `trees`. */
struct pattern_tree;
struct part {
    term t;                    /* where tree is NULL */
    struct pattern_tree *tree; /* contains something that looks around */
};
struct pattern_tree {
    enum pattern_kind kind;
    struct part *part; /* [n] */
    size_t n;
    uint32_t lo, hi;
    struct pattern_tree *older; /* in the list of all */
};

/* What may follow, by what stands in front: nothing, a character of a word, another one. */
struct after {
    term t[3];
};
enum { FRONT_NOTHING, FRONT_WORD, FRONT_OTHER };
struct lowering {
    struct term_pool *p;
    term word, other, any; /* one character of a word, not of one, any */
    const char *failed;    /* NULL, or what is not supported */
};
struct after pattern_lower(struct lowering *l, struct part part, struct after then);
#endif
