/* reader.h - a strict pull parser for JSON, from left to right, without a tree.
 *
 * It accepts exactly RFC 8259: no NaN, no leading zeros, no raw control characters, no text after
 * the value. The caller requests the expected values and skips others. The first error is kept in
 * `fault` (what was expected at `p`) and makes every later call return false, so a loop needs one
 * check at its end. Numbers are returned with their text, so no precision is lost. json_parse()
 * (json.h) uses this reader. UTF-8 is not validated. */
#ifndef COMMON_JSON_READER_H
#define COMMON_JSON_READER_H
#include "common/arena.h"
#include "common/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JR_MAX_DEPTH = 1000 };

struct json_reader {
    const char *s, *p, *end; /* start of the text, position, end */
    const char *fault;       /* NULL: no error so far */
};
/* Faults that json_parse() reports with its own messages. */
extern const char jr_control[], jr_bad_number[], jr_no_memory[], jr_surrogate[];

static inline struct json_reader json_reader(const char *s, size_t n)
{
    return (struct json_reader){s, s, s + n, NULL};
}

enum jr_kind {
    JR_NONE, /* end of the text, not JSON, or an error */
    JR_OBJECT,
    JR_ARRAY,
    JR_STRING,
    JR_NUMBER,
    JR_BOOL,
    JR_NULL
};

struct jr_number {
    double v;
    bool whole; /* written as an integer that fits into `i` */
    int64_t i;
    const char *text; /* as written */
    size_t n;
};

enum jr_kind jr_next(struct json_reader *j); /* the kind of the next value */
bool jr_open(struct json_reader *j, char c); /* enters '{' or '[' */
/* In an object or array: true at the next element, or false past `close`. *first must begin as
 * true. */
bool jr_more(struct json_reader *j, char close, bool *first);
/* A member's name and its colon: the raw bytes between the quotes, with escapes. */
bool jr_name(struct json_reader *j, const char **name, size_t *n);
bool jr_number(struct json_reader *j, struct jr_number *out);
bool jr_bool(struct json_reader *j, bool *out);
/* A string as written, with its quotes. */
bool jr_raw_string(struct json_reader *j, const char **text, size_t *n);
/* Decodes a string into `out`, replacing its content. A lone surrogate is an error. The result may
 * contain NUL bytes. */
bool jr_string(struct json_reader *j, struct buf *out);
bool jr_key(struct json_reader *j, struct buf *out); /* as jr_string(), followed by ':' */
/* Decodes a string into the arena, NUL-terminated; a lone surrogate becomes U+FFFD. False without a
 * fault: it contains a NUL. */
bool jr_arena_string(struct json_reader *j, struct arena *a, const char **out, size_t *n);
/* Skips any value, at most JR_MAX_DEPTH deep; returns its text if start is not NULL. */
bool jr_skip(struct json_reader *j, const char **start, const char **end);
bool jr_ended(struct json_reader *j);                      /* only white space is left */
bool jr_fail(struct json_reader *j, const char *expected); /* sets `fault`; always returns false */

/* Decodes a raw string without its quotes into out[n]. Returns the number of bytes. SIZE_MAX: a
 * lone surrogate; with `lone` it becomes U+FFFD instead. `nul`: U+0000 becomes C0 80. */
size_t jr_unescape(const char *raw, size_t n, char *out, bool lone, bool nul);
#endif
