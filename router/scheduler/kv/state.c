/* Snapshots of recurrent state: when a sequence takes one, and where a prompt stops for it. */
#include "router/scheduler/kv/impl.h"

enum {
    SNAPSHOT_EVERY = 1024, /* minimum distance in prompt tokens */
    SNAPSHOT_SHARE = 8,    /* a prompt takes at most 1/8 of the cells */
    SNAPSHOT_ODDS = 4,     /* assumed: one prompt in four is sent again */
};

bool kv_stateful(struct kv_blocks *kv, uint32_t n_cells, bool snapshots)
{
    kv->snapshots = snapshots;
    return (kv->cells = cells_new(n_cells, kv->n)) != NULL;
}

struct cells *kv_cells(const struct kv_blocks *kv) { return kv->cells; }

uint32_t kv_snapshot(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n,
                     bool rolls)
{
    uint32_t end = n / kv->block_tokens;
    if (!kv->cells || !kv->snapshots || n == 0 || n % kv->block_tokens != 0)
        return NO_CELL;
    kv_commit(kv, t, tokens, n);
    if (!t->shares || t->era != kv->era || t->n_sealed < end)
        return NO_CELL;
    if (t->n_rolled && rolls) {
        cells_drop(kv->cells, t->ids[t->n_rolled / kv->block_tokens - 1]);
        t->n_rolled = 0;
    }
    t->n_kept = n;
    if (cells_of(kv->cells, t->ids[end - 1]) != NO_CELL)
        return NO_CELL;
    uint32_t cell = cells_save(kv->cells, t->ids[end - 1], rolls);
    if (cell != NO_CELL && rolls)
        t->n_rolled = n;
    return cell;
}

void kv_step_tokens(struct kv_blocks *kv, uint32_t n) { kv->step_tokens = n; }

/* Prompts with a common prefix stop at the same positions. */
static uint32_t stops_every(const struct kv_blocks *kv, uint32_t n)
{
    uint32_t bt = kv->block_tokens, most = cells_stats(kv->cells).total / SNAPSHOT_SHARE;
    uint32_t every = bt < SNAPSHOT_EVERY ? SNAPSHOT_EVERY / bt * bt : bt;
    while (n / every > most && every < n)
        every *= 2;
    return every;
}

/* Tokens a snapshot must save to pay off, if one request in `odds` uses it. */
static uint32_t gain(const struct kv_blocks *kv, uint32_t odds)
{
    uint32_t least = SNAPSHOT_GAIN * kv->block_tokens, most = SNAPSHOT_EVERY;
    uint32_t n = kv->step_tokens < most / odds ? odds * kv->step_tokens : most;
    return n > least ? n : least;
}

static uint32_t nearer(uint32_t best, uint32_t stop, uint32_t from, uint32_t least)
{
    return stop > from && stop >= least && stop < best ? stop : best;
}

static uint32_t state_stop(const struct kv_blocks *kv, const struct kv_table *t, uint32_t n,
                           uint32_t from, bool awaited)
{
    if (!kv->cells || !kv->snapshots || !t->shares || t->era != kv->era || n == 0)
        return n;
    struct cells_stats c = cells_stats(kv->cells);
    if (c.total == c.owned)
        return n;
    uint32_t bt = kv->block_tokens, every = stops_every(kv, n);
    uint32_t known = t->n_kept + (awaited ? bt : gain(kv, 1));
    uint32_t maybe = t->n_kept + (awaited ? bt : gain(kv, SNAPSHOT_ODDS));
    uint32_t behind = from < known ? known - 1 : from;
    uint32_t best = nearer(n, t->n_matched, from, known);
    best = nearer(best, (behind / every + 1) * every, from, known);
    best = nearer(best, (n - 1) / bt * bt, from, maybe);
    if (best <= from)
        return best;
    const uint32_t stop = kv_media_stop(&t->media, from, best);
    return stop > from ? stop : kv_media_next(&t->media, from);
}

uint32_t kv_stop(const struct kv_blocks *kv, const struct kv_table *t, uint32_t n, uint32_t from,
                 bool awaited)
{
    const uint32_t stop = state_stop(kv, t, n, from, awaited);
    const uint32_t end = kv->windows ? t->windows_to * kv->block_tokens : stop;
    if (end >= stop)
        return stop;
    const uint32_t whole = kv_media_stop(&t->media, from, end);
    return whole > from ? whole : kv_media_next(&t->media, from);
}
