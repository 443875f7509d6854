/* jscan.h - a pull reader over JSON text, for the two parts of tokenizer.json that are too large
 * for a tree: a vocabulary of 250,000 keys and a list of 600,000 merges are read straight into
 * tables.
 *
 * The first fault is kept in `fault` and makes every later call return false, so that a loop needs
 * one check at its end. The text must be valid UTF-8. */
#ifndef COMMON_TOKENIZER_JSCAN_H
#define COMMON_TOKENIZER_JSCAN_H
#include "common/buf.h"
#include <stdbool.h>
#include <stddef.h>

struct jscan {
    const char *s, *p, *end; /* whole text, position, end */
    const char *fault;       /* what was expected at `p`; NULL: nothing wrong so far */
};

static inline struct jscan jscan(const char *s, size_t n)
{
    return (struct jscan){s, s, s + n, NULL};
}

char js_peek(struct jscan *j);         /* next character after blanks, 0 at the end */
bool js_open(struct jscan *j, char c); /* consume '{' or '[' */
/* In an object or array: true and at the next element, or false past `close` (consumed). */
bool js_more(struct jscan *j, char close, bool *first);
bool js_string(struct jscan *j, struct buf *out); /* unescaped; may hold NUL bytes */
bool js_key(struct jscan *j, struct buf *out);    /* string and ':' */
bool js_number(struct jscan *j, double *v);
bool js_skip(struct jscan *j, const char **start, const char **end); /* any value; its text */
bool js_fail(struct jscan *j, const char *expected);                 /* always false */
#endif
