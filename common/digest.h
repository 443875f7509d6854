/* digest.h - digests by which results are shared between requests: 64 bits of SHA-256, so that no
 * client can construct bytes with another's digest in practice. */
#ifndef COMMON_DIGEST_H
#define COMMON_DIGEST_H
#include <stddef.h>
#include <stdint.h>

uint64_t digest_bytes(const void *bytes, size_t n); /* never 0 */
#endif
