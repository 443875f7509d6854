/* hash.h - FNV-1a with a final mix, for hash tables whose keys are our own or bounded by their
 * owner. Not collision-resistant: callers compare the bytes. */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H
#include <stddef.h>
#include <stdint.h>

static inline uint64_t hash_mix(uint64_t h) /* MurmurHash3's finalizer */
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

static inline uint64_t hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *u = p;
    uint64_t h = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ u[i]) * 0x100000001b3u; // NOLINT(clang-analyzer-core.Undefined*)
    return hash_mix(h);
}
#endif
