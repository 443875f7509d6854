#include "common/digest.h"
#include <gnutls/crypto.h>
#include <stdlib.h>

uint64_t digest_bytes(const void *bytes, size_t n)
{
    uint8_t out[32];
    uint64_t digest = 0;
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, n, out) < 0)
        abort();
    for (int i = 0; i < 8; i++)
        digest = digest << 8 | out[i];
    return digest ? digest : 1;
}
