#include "model-server/offload/record.h"
#include "common/hash.h"
#include <string.h>

enum { VERSION_NOW = 1 };
static const char magic[8] = "KVBLOCK";

struct head {
    char magic[8];
    uint32_t version, parts;
    uint8_t identity[KV_IDENTITY], key[KV_KEY];
    uint64_t bytes[KV_N_PARTS];
    uint64_t sum;      /* of the parts */
    uint64_t head_sum; /* of what stands before */
};
_Static_assert(sizeof(struct head) <= KV_RECORD_HEAD, "the head has room");

/* A checksum: four multiplicative chains over 64-bit words. Any change of one word changes it. */
static uint64_t kv_record_sum(const void *p, size_t n)
{
    static const uint64_t prime = 0x9e3779b97f4a7c15u;
    uint64_t h[4] = {n, prime, n ^ prime, ~n}, w[4];
    const unsigned char *u = p;
    for (; n >= sizeof(w); n -= sizeof(w), u += sizeof(w)) {
        memcpy(w, u, sizeof(w));
        for (int i = 0; i < 4; i++) {
            h[i] = (h[i] ^ w[i]) * prime;
            h[i] ^= h[i] >> 29;
        }
    }
    memset(w, 0, sizeof(w));
    memcpy(w, u, n);
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum = hash_mix(sum ^ ((h[i] ^ w[i]) * prime));
    return sum;
}

size_t kv_record_bytes(const struct kv_layout *l, unsigned parts)
{
    size_t n = KV_RECORD_HEAD;
    for (unsigned i = 0; i < KV_N_PARTS; i++)
        n += parts >> i & 1 ? l->bytes[i] : 0;
    return n;
}

unsigned kv_record_parts(const void *record) { return ((const struct head *)record)->parts; }

void *kv_record_part(const struct kv_layout *l, void *record, enum kv_part part)
{
    const unsigned before = kv_record_parts(record) & ((1U << part) - 1);
    return (char *)record + kv_record_bytes(l, before);
}

void kv_record_begin(const struct kv_layout *l, void *record, const uint8_t key[KV_KEY],
                     unsigned parts)
{
    struct head h = {.version = VERSION_NOW, .parts = parts};
    memcpy(h.magic, magic, sizeof(h.magic));
    memcpy(h.identity, l->identity, KV_IDENTITY);
    memcpy(h.key, key, KV_KEY);
    memcpy(h.bytes, l->bytes, sizeof(h.bytes));
    memset(record, 0, KV_RECORD_HEAD);
    memcpy(record, &h, sizeof(h));
}

void kv_record_seal(const struct kv_layout *l, void *record)
{
    struct head *h = record;
    h->sum = kv_record_sum((char *)record + KV_RECORD_HEAD,
                           kv_record_bytes(l, h->parts) - KV_RECORD_HEAD);
    h->head_sum = kv_record_sum(h, offsetof(struct head, head_sum));
}

enum kv_verdict kv_record_check_head(const struct kv_layout *l, const void *head, size_t n,
                                     const uint8_t key[KV_KEY])
{
    struct head h;
    if (n < KV_RECORD_HEAD)
        return KV_DAMAGED;
    memcpy(&h, head, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.version != VERSION_NOW)
        return KV_FOREIGN;
    if (h.head_sum != kv_record_sum(&h, offsetof(struct head, head_sum)))
        return KV_DAMAGED;
    if (memcmp(h.identity, l->identity, KV_IDENTITY) != 0 || memcmp(h.key, key, KV_KEY) != 0 ||
        memcmp(h.bytes, l->bytes, sizeof(h.bytes)) != 0)
        return KV_FOREIGN;
    if (h.parts == 0 || h.parts >> KV_N_PARTS || n != kv_record_bytes(l, h.parts))
        return KV_DAMAGED;
    for (unsigned i = 0; i < KV_N_PARTS; i++)
        if (h.parts >> i & 1 && l->bytes[i] == 0)
            return KV_FOREIGN;
    return KV_FINE;
}

enum kv_verdict kv_record_check(const struct kv_layout *l, const void *record)
{
    const struct head *h = record;
    const size_t n = kv_record_bytes(l, h->parts);
    return h->sum == kv_record_sum((const char *)record + KV_RECORD_HEAD, n - KV_RECORD_HEAD)
               ? KV_FINE
               : KV_DAMAGED;
}
