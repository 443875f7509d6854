/* json_reader.h - the one reader of JSON text: strict, from left to right, without a tree.
 *
 * It takes RFC 8259 and nothing else: no NaN, no leading zeros, no raw control characters, no text
 * behind the value. Who calls it asks for what is expected and skips the rest. The first fault
 * stays in `fault` (what was expected at `p`) and makes every later call return false, so that a
 * loop needs one check at its end. Numbers come with their text, so that nothing of them is lost.
 * json_parse() (json.h) builds its trees with it. The text must be valid UTF-8, if that matters. */
#ifndef COMMON_JSON_READER_H
#define COMMON_JSON_READER_H
#include "common/arena.h"
#include "common/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JR_MAX_DEPTH = 1000 };

struct json_reader {
    const char *s, *p, *end; /* whole text, position, end */
    const char *fault;       /* NULL: nothing wrong so far */
};
/* Faults that json_parse() has words of its own for. */
extern const char jr_control[], jr_bad_number[], jr_no_memory[];

static inline struct json_reader json_reader(const char *s, size_t n)
{
    return (struct json_reader){s, s, s + n, NULL};
}

enum jr_kind {
    JR_NONE, /* the text ends here, is no JSON, or there was a fault */
    JR_OBJECT,
    JR_ARRAY,
    JR_STRING,
    JR_NUMBER,
    JR_BOOL,
    JR_NULL
};

struct jr_number {
    double v;
    bool whole; /* written as an integer that fits: `i` */
    int64_t i;
    const char *text; /* as it is written */
    size_t n;
};

enum jr_kind jr_next(struct json_reader *j); /* what the next value is */
bool jr_open(struct json_reader *j, char c); /* step into '{' or '[' */
/* In an object or array: true and at the next element, or false past `close`. *first begins true.
 */
bool jr_more(struct json_reader *j, char close, bool *first);
/* A member's name and its colon: the bytes between the quotes, escapes and all. */
bool jr_name(struct json_reader *j, const char **name, size_t *n);
bool jr_number(struct json_reader *j, struct jr_number *out);
bool jr_bool(struct json_reader *j, bool *out);
/* A string as it is written, with its quotes. */
bool jr_raw_string(struct json_reader *j, const char **text, size_t *n);
/* A string's characters in place of what `out` holds. Half a surrogate pair is a fault. They may
 * hold NUL bytes. */
bool jr_string(struct json_reader *j, struct buf *out);
bool jr_key(struct json_reader *j, struct buf *out); /* the same, and ':' */
/* A string's characters, terminated, in the arena; half a pair is U+FFFD. False, without a fault,
 * where they hold a NUL. */
bool jr_arena_string(struct json_reader *j, struct arena *a, const char **out, size_t *n);
/* Any value, at most JR_MAX_DEPTH deep; its text if start is not NULL. */
bool jr_skip(struct json_reader *j, const char **start, const char **end);
bool jr_ended(struct json_reader *j);                      /* nothing but white space is left */
bool jr_fail(struct json_reader *j, const char *expected); /* always false */

/* The characters of a raw string without its quotes, into out[n]; returns how many bytes. SIZE_MAX:
 * half a surrogate pair, unless `lone` is true: then it is U+FFFD. `nul`: U+0000 becomes C0 80. */
size_t jr_unescape(const char *raw, size_t n, char *out, bool lone, bool nul);
#endif
