/* buf.h - a growing byte string.
 *
 * Always NUL-terminated behind `len`, so that `b.p` is also a C string. Growth that fails sets
 * `oom` and drops the bytes: append freely, look at `oom` once at the end. */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *p; /* NULL while nothing was ever appended */
    size_t len, cap;
    bool oom;
};
#define BUF_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

void buf_free(struct buf *b);                 /* leaves an empty, usable buf */
void buf_reset(struct buf *b);                /* len = 0, keeps the memory */
int buf_reserve(struct buf *b, size_t extra); /* room for `extra` more bytes; -1: oom */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_ch(struct buf *b, char c);
void buf_fmt(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *
buf_take(struct buf *b); /* the bytes, caller frees; never NULL unless oom; b is empty after */

/* JSON output by hand (per-token paths; cJSON prints 30 times slower). */
void buf_json_str(struct buf *b, const char *s,
                  size_t n); /* quoted and escaped; invalid UTF-8 becomes U+FFFD */
/* Base64 (RFC 4648) with padding. */
void buf_base64(struct buf *b, const void *p, size_t n);
void buf_json_f32(struct buf *b,
                  float v); /* shortest digits that read back as v; null when not finite */
void buf_u64(struct buf *b, uint64_t v);
#endif
