// fuzz-sources: model-server/offload/record.c model-server/offload/tier.c
// fuzz-sources: model-server/offload/folder.c common/err.c common/log/log.c common/log/sink.c
// fuzz-sources: common/buf.c common/utf8.c common/arena.c common/json/json.c common/json/exact.c
// fuzz-sources: common/json/reader.c
#include "common/clock.h"
#include "model-server/offload/tier.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { BLOCK = 300, WINDOW = 0, STATE = 41 };

static struct kv_tier *fresh(struct kv_layout *l)
{
    struct err e = ERR_INIT;
    *l = (struct kv_layout){.bytes = {BLOCK, WINDOW, STATE}};
    memset(l->identity, 7, sizeof(l->identity));
    struct kv_tier *t = kv_tier_new(&(struct kv_tier_options){.memory_bytes = 1 << 16}, &e);
    if (!t || kv_tier_layout(t, l, &e))
        abort();
    return t;
}

/* What a peer sends for a block. The first byte: 1: the rest is a record as it is. Else a true one
 * is made of the parts that it names, and the rest is pairs of a place and what is changed there;
 * 2: before the checksums. What is taken is whole, and comes out as it went in. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t key[KV_KEY] = {1, 2, 3};
    struct kv_layout l;
    bool room, foreign;
    if (n < 2)
        return 0;
    struct kv_tier *t = fresh(&l);
    const unsigned parts = data[0] >> 2 & 1 ? 5 : 1;
    size_t len = data[0] & 1 ? n - 1 : kv_record_bytes(&l, parts);
    uint8_t *record = calloc(1, len + 1);
    if (!record)
        abort();
    if (data[0] & 1) {
        memcpy(record, data + 1, len);
    } else {
        kv_record_begin(&l, record, key, parts);
        if (!(data[0] & 2))
            kv_record_seal(&l, record);
        for (size_t i = 1; i + 3 <= n; i += 3)
            record[(data[i] | data[i + 1] << 8) % len] ^= data[i + 2];
        /* the parts say how long it is: a head that lies about them is not sealed */
        if (data[0] & 2 && kv_record_parts(record) == parts)
            kv_record_seal(&l, record);
        if (data[0] & 8)
            len -= data[n - 1] % len;
    }
    const enum kv_verdict v = kv_tier_insert(t, key, record, len, &room);
    if (v == KV_FINE) {
        size_t out_n = 0;
        uint8_t *out = kv_tier_read(t, l.identity, key, 0, &out_n, &foreign);
        if (!room || !out || out_n != len || len != kv_record_bytes(&l, kv_record_parts(record)) ||
            memcmp(out + KV_RECORD_HEAD, record + KV_RECORD_HEAD, len - KV_RECORD_HEAD) != 0)
            abort();
        free(out);
    }
    free(record);
    kv_tier_free(t);
    return 0;
}
