/* digest.h - is a file what its etag says? The hub names large files by the sha-256 of their bytes,
 * others as git does: sha-1 of "blob <size>\0" and the bytes. Other etags say nothing. */
#ifndef COMMON_HUB_DIGEST_H
#define COMMON_HUB_DIGEST_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest {
    void *state; /* NULL: nothing is computed */
    size_t n;    /* bytes of the result */
};

/* `size`: of the whole file. An etag that is no digest leaves an empty one, which matches all. */
int digest_begin(struct digest *d, const char *etag, int64_t size, struct err *e);
void digest_add(struct digest *d, const void *p, size_t n);
/* Does what was added match? Ends the digest. */
bool digest_matches(struct digest *d, const char *etag);
void digest_drop(struct digest *d); /* ended or not */
#endif
