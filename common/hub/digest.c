#include "common/hub/digest.h"
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHA1_HEX = 40, SHA256_HEX = 64 };

int digest_begin(struct digest *d, const char *etag, int64_t size, struct err *e)
{
    size_t n = strspn(etag, "0123456789abcdef");
    gnutls_hash_hd_t h;
    char head[40];
    *d = (struct digest){0};
    if (etag[n] || (n != SHA1_HEX && n != SHA256_HEX))
        return 0;
    if (gnutls_hash_init(&h, n == SHA1_HEX ? GNUTLS_DIG_SHA1 : GNUTLS_DIG_SHA256) < 0)
        return err_nomem(e);
    *d = (struct digest){h, n / 2};
    if (n == SHA1_HEX) /* includes the NUL */
        digest_add(d, head, (size_t)snprintf(head, sizeof(head), "blob %" PRId64, size) + 1);
    return 0;
}

void digest_add(struct digest *d, const void *p, size_t n)
{
    if (d->state)
        gnutls_hash(d->state, p, n);
}

bool digest_matches(struct digest *d, const char *etag)
{
    unsigned char out[32];
    char hex[2 * sizeof(out) + 1] = "";
    if (!d->state)
        return true;
    gnutls_hash_deinit(d->state, out);
    for (size_t i = 0; i < d->n; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
    *d = (struct digest){0};
    return !strcmp(hex, etag);
}

void digest_drop(struct digest *d)
{
    if (d->state)
        gnutls_hash_deinit(d->state, NULL);
    *d = (struct digest){0};
}
