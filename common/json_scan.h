/* json_scan.h - JSON read once, from left to right, without a tree.
 *
 * An LMTP message is mostly numbers: a prompt of a hundred thousand ids, a bias for half a
 * vocabulary. The reader asks for what it expects; what it does not know it skips. The first
 * fault of grammar sticks (`failed`), and every call after it does nothing. Numbers are JSON's:
 * no NaN, no Infinity. */
#ifndef COMMON_JSON_SCAN_H
#define COMMON_JSON_SCAN_H
#include "common/arena.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    const char *p, *end;
    bool failed;
};

enum scan_type {
    SCAN_NONE, /* the text ends here, or is no JSON */
    SCAN_OBJECT,
    SCAN_ARRAY,
    SCAN_STRING,
    SCAN_NUMBER,
    SCAN_BOOL,
    SCAN_NULL
};

struct scan_number {
    double v;
    bool whole; /* written as an integer that fits: `i` */
    int64_t i;
};

enum scan_type scan_next(struct scan *s); /* what the next value is; skips white space */
/* Step into '{' or '['; then scan_more() says whether there is another member, and steps out. */
void scan_open(struct scan *s);
bool scan_more(struct scan *s, char close, bool *first);
/* A member's name and its colon: the bytes between the quotes, escapes and all. */
bool scan_key(struct scan *s, const char **name, size_t *n);
bool scan_number(struct scan *s, struct scan_number *out);
/* A string as it is written, with its quotes. */
bool scan_raw_string(struct scan *s, const char **text, size_t *n);
/* A string's characters, terminated, in the arena. False also where it holds a NUL. */
bool scan_string(struct scan *s, struct arena *a, const char **out, size_t *n);
bool scan_skip(struct scan *s);  /* any value, at most 64 deep */
bool scan_ended(struct scan *s); /* nothing but white space is left */
#endif
