/* batch.c - the ragged batch on the device: one pinned record, one copy a step. */
#include "model-server/backend/cuda/cuda.h"
#include <string.h>

/* Most tiles of a step: 16 rows each in the worst case. */
enum { MAX_GROUP = 128 };

/* Bytes for what a row's draw asks for, so that most steps need one copy. */
enum { DRAW_ROOM = 512 };

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t n_tiles_most(const struct ragged *b)
{
    return (size_t)b->n_spans + (size_t)b->n_tokens * MAX_GROUP / SHARED_ROWS;
}

/* One past the last key that a span reads: kv_len, or the end of its last token's range, which is
 * after that if a part of an encoder's step is computed. */
static uint32_t span_end(const struct ragged *b, const struct span *s)
{
    const uint32_t range = b->mutual && s->n ? b->mutual[s->first + s->n - 1].end : 0;
    return range > s->kv_len ? range : s->kv_len;
}

/* The blocks of these. */
static size_t n_table(const struct device *d, const struct ragged *b, const struct span *s)
{
    return d->kv_block_size ? (span_end(b, s) + d->kv_block_size - 1) / d->kv_block_size : 0;
}

static size_t lora_tiles(const struct span *s)
{
    return s->adapter ? ((size_t)s->n + LORA_TOKENS - 1) / LORA_TOKENS : 0;
}

void batch_free(struct device *d)
{
    outbox_free(&d->b.box);
    d->b = (struct batch_record){0};
}

/* The next `bytes` of the record: host and device address. */
static void *place(struct batch_record *r, size_t bytes, void *dev)
{
    void *host = r->host + r->used;
    *(void **)dev = r->dev + r->used;
    r->used = align64(r->used + bytes);
    return host;
}

static void put_u32(struct batch_record *r, uint32_t **dev, const uint32_t *src, size_t n)
{
    void *host = place(r, n * sizeof(*src), dev);
    if (src && n)
        memcpy(host, src, n * sizeof(*src));
}

uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* Bytes of the image entries; 0 for a step without images. */
static size_t picture_bytes(const struct ragged *b)
{
    return (size_t)b->n_tokens *
           ((b->given ? sizeof(uint32_t) : 0) + (b->mutual ? sizeof(struct mutual) : 0));
}

static void put_pictures(struct batch_record *r, const struct ragged *b)
{
    bool any = false;
    uint32_t *given = place(r, b->given ? b->n_tokens * sizeof(*given) : 0, &r->given), n = 0;
    for (uint32_t i = 0; b->given && i < b->n_tokens; i++)
        given[i] = b->given[i] ? n++ : GIVE_NONE;
    for (uint32_t i = 0; b->mutual && i < b->n_tokens; i++)
        any |= b->mutual[i].begin != b->mutual[i].end;
    struct mutual *m = place(r, any ? b->n_tokens * sizeof(*m) : 0, &r->mutual);
    if (any)
        memcpy(m, b->mutual, b->n_tokens * sizeof(*m));
    else
        r->mutual = NULL;
}

int batch_begin(struct device *d, const struct ragged *b, struct err *e)
{
    struct batch_record *r = &d->b;
    size_t tables = 0, lora = 0, tiles = n_tiles_most(b) * sizeof(struct row_tile);
    for (uint32_t i = 0; i < b->n_spans; i++)
        tables += n_table(d, b, &b->spans[i]), lora += lora_tiles(&b->spans[i]);
    if (b->window_slots) /* rounded up, so that the addresses after it rarely change */
        tables = power_of_two((uint32_t)tables);
    const size_t window_tables = b->window_slots ? tables : 0;
    const size_t window_tokens = b->window_slots ? b->n_tokens : 0;
    size_t bytes = (size_t)b->n_tokens * 20 + (size_t)b->n_out * 4 + tables * 4 + tiles +
                   (window_tokens + window_tables) * 4 + b->n_spans * sizeof(struct span_view) +
                   lora * sizeof(struct lora_tile) + picture_bytes(b) +
                   (size_t)DRAW_ROOM * b->n_out + (size_t)16 * 64;
    if (outbox_next(d, &r->box, bytes, "the batch", "lower --max-batch-prefill-tokens", e))
        return -1;
    r->host = outbox_host(&r->box), r->dev = r->box.dev;
    r->used = 0;
    put_u32(r, &r->ids, b->ids, b->n_tokens);
    put_u32(r, &r->pos, b->pos, b->n_tokens);
    put_u32(r, &r->slots, b->slots, b->n_tokens);
    put_u32(r, &r->window_slots, b->window_slots, window_tokens);
    put_u32(r, &r->out_rows, b->out_rows, b->n_out);
    uint32_t *from = place(r, b->drawn ? b->n_tokens * sizeof(*from) : 0, &r->from);
    for (uint32_t i = 0; b->drawn && i < b->n_tokens; i++)
        from[i] = b->drawn[i] == DRAW_KNOWN
                      ? DRAW_KNOWN
                      : (uint32_t)b->drawn_set * d->draw.cap_rows + b->drawn[i];
    put_pictures(r, b);
    uint32_t *span_of = place(r, b->n_tokens * sizeof(*span_of), &r->span_of);
    struct span_view *spans = place(r, b->n_spans * sizeof(*spans), &r->spans);
    place(r, tiles, &r->tiles); /* filled by batch_tiles() */
    struct lora_tile *tile = place(r, lora * sizeof(*tile), &r->lora);
    r->host_lora = tile, r->n_lora = (uint32_t)lora;
    r->draws_host = place(r, (size_t)DRAW_ROOM * b->n_out, &r->draws);
    r->draws_bytes = (size_t)DRAW_ROOM * b->n_out;
    uint32_t *table = place(r, tables * sizeof(*table), &r->tables), at = 0;
    uint32_t *windows = place(r, window_tables * sizeof(*windows), &r->window_tables);
    d->decode = true;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        uint32_t n = (uint32_t)n_table(d, b, s);
        spans[i] = (struct span_view){s->first, s->n, s->kv_len, at, s->state_in, s->state_out};
        for (uint32_t t = 0; t < s->n; t++)
            span_of[s->first + t] = i;
        if (n)
            memcpy(table + at, s->blocks, n * sizeof(*table));
        if (n && window_tables)
            memcpy(windows + at, s->windows, n * sizeof(*windows));
        at += n;
        d->decode &= s->n == 1;
        for (uint32_t t = 0; s->adapter && t < s->n; t += LORA_TOKENS)
            *tile++ = (struct lora_tile){
                s->first + t, s->n - t < LORA_TOKENS ? s->n - t : LORA_TOKENS, s->adapter, 0};
    }
    r->group = 0;
    r->dirty = true;
    d->narrow_turn = 0;
    return 0;
}

/* ---------------------------------------------------------------- row tiles */

/* Tiles of few rows, as decode has them: segments in parallel use the whole device for a few
 * sequences, and all warps of a block for many; unless there is no memory for their results. */
static bool worth_splitting(const struct device *d, uint32_t group, uint32_t n_kv_heads,
                            uint32_t head_dim, uint32_t *segments, uint32_t *rows)
{
    const struct ragged *b = d->batch;
    uint32_t n = 0, longest = 0;
    *rows = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        if ((uint64_t)s->n * group > TILE_Q)
            continue;
        n++;
        const uint32_t end = span_end(b, s);
        longest = end > longest ? end : longest;
        *rows = s->n * group > *rows ? s->n * group : *rows;
    }
    /* rounded up, so that a graph is valid for longer */
    *segments = power_of_two((longest + SEGMENT - 1) / SEGMENT);
    size_t bytes = (size_t)n * n_kv_heads * *segments * *rows * (head_dim + 2) * sizeof(float);
    return n && bytes <= d->split_bytes;
}

size_t batch_split_bytes(const struct device *d, uint32_t group, uint32_t n_kv_heads,
                         uint32_t head_dim)
{
    uint32_t rows = group <= TILE_Q ? TILE_Q / group * group : 0;
    uint64_t tiles = (uint64_t)d->batch->n_tokens * n_kv_heads * d->b.segments;
    uint64_t bytes = tiles * rows * (head_dim + 2) * sizeof(float);
    return bytes < d->split_bytes ? bytes : d->split_bytes;
}

/* By estimate: several blocks for each place, of which a multiprocessor has three, balance the
 * lengths of sequences. More would be empty in a batch with one long sequence. */
uint32_t batch_walkers(const struct device *d, uint32_t n_kv_heads)
{
    const uint64_t one = (uint64_t)d->b.n_split * n_kv_heads, most = 8 * (uint64_t)d->sms;
    const uint64_t walkers = (most + one - 1) / one;
    return walkers < d->b.segments ? (uint32_t)walkers : d->b.segments;
}

bool batch_group(const struct device *d, uint32_t group)
{
    return d->b.group ? d->b.group == group : group <= MAX_GROUP;
}

void batch_tiles(struct device *d, uint32_t group, uint32_t n_kv_heads, uint32_t head_dim)
{
    struct batch_record *r = &d->b;
    const struct ragged *b = d->batch;
    struct row_tile *t = (struct row_tile *)(void *)(r->host + ((char *)r->tiles - r->dev));
    if (r->group == group)
        return;
    bool split = worth_splitting(d, group, n_kv_heads, head_dim, &r->segments, &r->split_rows);
    uint32_t n = 0;
    for (uint32_t i = 0; split && i < b->n_spans; i++)
        if ((uint64_t)b->spans[i].n * group <= TILE_Q)
            t[n++] = (struct row_tile){i, 0, b->spans[i].n * group};
    r->n_split = n;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        uint32_t rows = b->spans[i].n * group;
        if (split && rows <= TILE_Q)
            continue;
        for (uint32_t first = 0; first < rows; first += SHARED_ROWS)
            t[n++] = (struct row_tile){i, first,
                                       rows - first < SHARED_ROWS ? rows - first : SHARED_ROWS};
    }
    r->n_shared = n - r->n_split;
    r->group = group;
    r->dirty = true;
}

void batch_send(struct device *d)
{
    struct batch_record *r = &d->b;
    if (!r->dirty)
        return;
    r->dirty = false;
    outbox_send(d, &r->box, r->used);
}
