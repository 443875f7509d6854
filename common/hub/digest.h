/* digest.h - verifies a file by its etag. The hub's etag of a large file is its SHA-256; of other
 * files git's SHA-1 of "blob <size>\0" and the bytes. Other etags cannot be verified. */
#ifndef COMMON_HUB_DIGEST_H
#define COMMON_HUB_DIGEST_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest {
    void *state; /* NULL: nothing is computed */
    size_t n;    /* size of the result in bytes */
};

/* `size`: of the whole file. An etag that is not a digest gives an empty digest, which always
 * matches. */
int digest_begin(struct digest *d, const char *etag, int64_t size, struct err *e);
void digest_add(struct digest *d, const void *p, size_t n);
/* Compares the digest of the added bytes, and ends it. */
bool digest_matches(struct digest *d, const char *etag);
void digest_drop(struct digest *d); /* ended or not */
#endif
