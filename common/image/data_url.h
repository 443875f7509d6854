/* data_url.h - pictures inside a URL: data:MIME;base64,... (RFC 2397).
 *
 * Base64 is RFC 4648's, strict: no blanks, padded, no bits left over. */
#ifndef COMMON_IMAGE_DATA_URL_H
#define COMMON_IMAGE_DATA_URL_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum data_url_rule {
    DATA_URL_TGI,    /* "data:" MIME ";base64," in small letters, and no parameter */
    DATA_URL_OPENAI, /* letters of either case, and parameters before ";base64" */
};

struct data_url {
    char mime[128]; /* in small letters, without parameters; "" where the URL has none */
    uint8_t *bytes; /* free() */
    size_t n;
};

/* Does it begin with "data:", in letters of either case? */
bool data_url_is(const char *url, size_t n);
/* `max_bytes`: of the decoded file. ERR_VALIDATION: the URL is none by this rule, its base64 is
 * wrong ("base64 encoding is invalid: ..."), or the file is larger; the sentence holds none of its
 * bytes. `out` is empty after an error. */
int data_url_decode(const char *url, size_t n, enum data_url_rule rule, size_t max_bytes,
                    struct data_url *out, struct err *e);
/* Strict base64 to `out`, which has room for n / 4 * 3 bytes. *len: what it holds. */
int base64_decode(const char *s, size_t n, uint8_t *out, size_t *len, struct err *e);
#endif
