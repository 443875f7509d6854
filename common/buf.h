/* buf.h - a growing byte string.
 *
 * Always terminated by a NUL after `len`, so `b.p` is also a C string. If it cannot grow, it sets
 * `oom` and drops the bytes: append without checks, and test `oom` once at the end. */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *p; /* NULL until the first append */
    size_t len, cap;
    bool oom;
};
#define BUF_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

void buf_free(struct buf *b);  /* frees the memory; leaves an empty, usable buf */
void buf_reset(struct buf *b); /* sets len to 0, keeps the memory */
/* ensures capacity for `extra` more bytes; -1: out of memory */
int buf_reserve(struct buf *b, size_t extra);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_ch(struct buf *b, char c);
void buf_fmt(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns the bytes, which the caller frees, and empties `b`. NULL only if oom. */
char *buf_take(struct buf *b);

/* JSON output for per-token paths; cJSON prints 30 times slower. */
/* Appends a quoted and escaped string; invalid UTF-8 becomes U+FFFD. */
void buf_json_str(struct buf *b, const char *s, size_t n);
/* Appends base64 (RFC 4648) with padding. */
void buf_base64(struct buf *b, const void *p, size_t n);
/* Appends the shortest digits that read back as v; null if not finite. */
void buf_json_f32(struct buf *b, float v);
void buf_u64(struct buf *b, uint64_t v);
/* A time in seconds since 1970 as a quoted string, in UTC: "2026-11-27T18:30:21Z" (RFC 3339). */
void buf_json_time(struct buf *b, int64_t unix_seconds);
#endif
