/* data_url.h - images in data URLs: data:MIME;base64,... (RFC 2397).
 *
 * Base64 as in RFC 4648, strict: no blanks, padded, no unused bits set. The rule of OpenAI's
 * protocol and the others also allows blanks, percent-encoded symbols, the URL's alphabet, and no
 * padding, as the WHATWG's Fetch standard and clients do. */
#ifndef COMMON_IMAGE_DATA_URL_H
#define COMMON_IMAGE_DATA_URL_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum data_url_rule {
    DATA_URL_TGI,    /* "data:" MIME ";base64," in lower case, without parameters */
    DATA_URL_OPENAI, /* any case, parameters before ";base64", lenient base64 */
};

struct data_url {
    char mime[128]; /* in lower case, without parameters; "" if the URL has none */
    uint8_t *bytes; /* free() */
    size_t n;
};

/* Does it begin with "data:", in any case? */
bool data_url_is(const char *url, size_t n);
/* `max_bytes`: limit of the decoded file. ERR_VALIDATION: not a valid URL under this rule, invalid
 * base64 ("base64 encoding is invalid: ..."), or a larger file; the message contains no bytes of
 * the URL. `out` is empty after an error. */
int data_url_decode(const char *url, size_t n, enum data_url_rule rule, size_t max_bytes,
                    struct data_url *out, struct err *e);
/* Decodes strict base64 to `out`, which has space for n / 4 * 3 bytes. *len: its length. */
int base64_decode(const char *s, size_t n, uint8_t *out, size_t *len, struct err *e);
/* The same by the rule of OpenAI's protocol; `out` has space for n / 4 * 3 + 3 bytes. */
int base64_decode_lenient(const char *s, size_t n, uint8_t *out, size_t *len, struct err *e);
#endif
