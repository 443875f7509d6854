/* KV events of the scheduler's prefix tree, one batch per turn. */
#include "router/events/publisher.h"
#include "router/scheduler/state.h"
#include <string.h>
#include <time.h>

/* The first 64 bits of a key: opaque to readers, equal in every process. */
static uint64_t hash_of(const uint8_t *key)
{
    uint64_t h;
    memcpy(&h, key, sizeof(h));
    return h;
}

static void on_stored(void *arg, const uint8_t *key, const uint8_t *parent, const uint64_t *tokens)
{
    struct kv_recorder *r = arg;
    const uint64_t before = parent ? hash_of(parent) : 0;
    kv_recorder_stored(r, hash_of(key), parent ? &before : NULL, tokens);
}

static void on_removed(void *arg, const uint8_t *key) { kv_recorder_removed(arg, hash_of(key)); }

static void on_cleared(void *arg) { kv_recorder_cleared(arg); }

bool kv_events_watch(struct scheduler *s, struct kv_blocks *kv)
{
    s->recorder.block_tokens = s->o.model.block_size;
    if (!s->o.events)
        return true;
    const struct kv_watcher w = {on_stored, on_removed, on_cleared, &s->recorder};
    kv_watch(kv, &w);
    return kv_keyed(kv);
}

void kv_events_flush(struct scheduler *s)
{
    struct buf out = BUF_INIT;
    struct timespec now;
    if (!s->o.events || (s->recorder.n == 0 && s->recorder.n_run == 0))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    const double t = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    if (kv_recorder_take(&s->recorder, t, s->o.events_rank, &out))
        kv_publish(s->o.events, &out);
    buf_free(&out);
}
