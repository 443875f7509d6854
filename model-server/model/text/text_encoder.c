#include "model-server/model/text/text_encoder.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/model/decoder.h"
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16, MOST_PASS = 2048 }; /* most ids of a pass, unless one text is longer */

struct text_encoder {
    struct decoder d;
    const struct text_job *jobs; /* [n]; NULL: idle */
    uint32_t n, next, end; /* jobs [next, end) are in the pass; end == next: it has not begun */
    struct ragged batch;
    struct decoder_walk walk;

    /* Working memory of a pass, which grows to the largest text. Each text begins a new block. */
    uint32_t cap; /* blocks */
    uint32_t *ids, *pos, *slots, *blocks;
    const float **given;   /* rows instead of embeddings; NULL: it is looked up */
    struct mutual *mutual; /* each id attends to its whole text */
    struct span *spans;
};

static uint32_t blocks_of(uint32_t ids) { return (ids + BLOCK - 1) / BLOCK; }

/* ---------------------------------------------------------------- memory */

static void free_memory(struct text_encoder *t)
{
    free(t->ids), free(t->pos), free(t->slots), free(t->blocks), free(t->mutual), free(t->spans);
    free(t->given);
    t->given = NULL;
    t->ids = t->pos = t->slots = t->blocks = NULL;
    t->mutual = NULL;
    t->spans = NULL;
    t->cap = 0;
}

/* A cache for the keys and values of one layer, which all layers use in turn. */
static struct kv_desc describe(const struct text_encoder *t, uint32_t n_blocks)
{
    return (struct kv_desc){.n_layers = 1,
                            .n_blocks = n_blocks,
                            .block_size = BLOCK,
                            .dtype = decoder_encode_kv(&t->d),
                            .each = t->d.kv_layers[0]};
}

static int reserve_kv(struct text_encoder *t, uint32_t n_blocks, struct err *e)
{
    struct decoder *d = &t->d;
    const struct kv_desc k = describe(t, n_blocks);
    if (d->kv) /* first: there may be no memory for both */
        d->ops->kv_free(d->dev, d->kv);
    d->kv = d->ops->kv_new(d->dev, &k, e);
    return d->kv ? 0 : -1;
}

static int reserve_blocks(struct text_encoder *t, uint32_t n, struct err *e)
{
    const uint32_t ids = n * BLOCK;
    if (n <= t->cap)
        return 0;
    free_memory(t);
    t->ids = malloc(ids * sizeof(*t->ids));
    t->pos = malloc(ids * sizeof(*t->pos));
    t->slots = malloc(ids * sizeof(*t->slots));
    t->blocks = malloc(n * sizeof(*t->blocks));
    t->mutual = malloc(ids * sizeof(*t->mutual));
    t->spans = malloc(n * sizeof(*t->spans));
    t->given = malloc(ids * sizeof(*t->given));
    if (!t->given || !t->ids || !t->pos || !t->slots || !t->blocks || !t->mutual || !t->spans)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        t->blocks[i] = i;
    if (reserve_kv(t, n, e))
        return -1;
    t->cap = n;
    return 0;
}

int text_encoder_reserve(struct text_encoder *t, uint32_t ids, struct err *e)
{
    return reserve_blocks(t, blocks_of(ids), e);
}

uint64_t text_encoder_reserve_bytes(const struct text_encoder *t, uint32_t ids)
{
    const uint32_t pass = decoder_pass_tokens(&t->d), n = pass < ids ? pass : ids;
    const struct kv_desc k = describe(t, 1);
    /* scratch memory of the whole text, which is proportional to its length */
    const uint64_t scratch = n ? decoder_scratch_bytes(&t->d, n, 0) / n * ids : 0;
    return scratch + blocks_of(ids) * t->d.ops->kv_block_bytes(&k);
}

uint64_t text_encoder_weight_bytes(const struct text_encoder *t) { return t->d.weights.bytes; }
uint32_t text_encoder_width(const struct text_encoder *t) { return t->d.spec.hidden; }

/* ---------------------------------------------------------------- a pass */

/* Most blocks of a pass. A long text may have reserved more than is fast. */
static uint32_t pass_blocks(const struct text_encoder *t)
{
    const uint32_t pass = decoder_pass_tokens(&t->d);
    const uint32_t most = blocks_of(pass < MOST_PASS ? pass : MOST_PASS);
    return t->cap < most ? t->cap : most;
}

/* Adds job `i` as the next span; `block` is its first. */
static void add_text(struct text_encoder *t, uint32_t i, uint32_t block)
{
    const struct text_job *job = &t->jobs[i];
    const float *row = job->given;
    struct ragged *b = &t->batch;
    t->spans[b->n_spans++] = (struct span){.first = b->n_tokens,
                                           .n = job->n,
                                           .kv_len = job->n,
                                           .blocks = t->blocks + block,
                                           .seq_len = job->n};
    for (uint32_t k = 0; k < job->n; k++, b->n_tokens++) {
        t->ids[b->n_tokens] = job->ids[k];
        t->given[b->n_tokens] = row && job->ids[k] == job->stands_for ? row : NULL;
        if (t->given[b->n_tokens]) {
            row += t->d.spec.hidden;
            b->given = t->given;
        }
        t->pos[b->n_tokens] = k;
        t->slots[b->n_tokens] = block * BLOCK + k;
        t->mutual[b->n_tokens] = (struct mutual){0, job->n};
    }
}

/* Fills a pass with the next texts: as many as fit, at least one. */
static int begin_pass(struct text_encoder *t, struct err *e)
{
    uint32_t block = 0;
    if (reserve_blocks(t, blocks_of(t->jobs[t->next].n), e))
        return -1;
    t->batch = (struct ragged){
        .ids = t->ids, .pos = t->pos, .slots = t->slots, .spans = t->spans, .mutual = t->mutual};
    for (t->end = t->next; t->end < t->n; t->end++) {
        const uint32_t more = blocks_of(t->jobs[t->end].n);
        if (block && block + more > pass_blocks(t))
            break;
        add_text(t, t->end, block);
        block += more;
    }
    return decoder_walk_begin(&t->d, &t->batch, 1, &t->walk, e);
}

static int end_pass(struct text_encoder *t, struct err *e)
{
    const struct decoder *d = &t->d;
    const size_t row = d->spec.hidden;
    const float *rows = t->walk.rows;
    for (; t->next < t->end; t->next++) {
        const struct text_job *job = &t->jobs[t->next];
        if (d->ops->download(d->dev, job->out, rows, job->n * row * sizeof(float), e))
            return -1;
        rows += job->n * row;
    }
    return 0;
}

int text_encoder_begin(struct text_encoder *t, const struct text_job *jobs, uint32_t n,
                       struct err *e)
{
    (void)e;
    assert(!text_encoder_busy(t));
    t->jobs = jobs;
    t->n = n;
    t->next = t->end = 0;
    return 0;
}

bool text_encoder_busy(const struct text_encoder *t) { return t->next < t->n; }

void text_encoder_stop(struct text_encoder *t)
{
    t->jobs = NULL;
    t->n = t->next = t->end = 0;
}

int text_encoder_go_on(struct text_encoder *t, uint64_t most, uint64_t *done, struct err *e)
{
    *done = 0;
    while (text_encoder_busy(t) && *done < most) {
        uint64_t some = 0;
        int rc = t->end == t->next ? begin_pass(t, e) : 0;
        if (rc == 0)
            rc = decoder_walk_on(&t->d, &t->walk, most - *done, &some, e);
        if (rc == 0 && t->walk.over)
            rc = end_pass(t, e);
        if (rc) {
            text_encoder_stop(t);
            return -1;
        }
        *done += some;
    }
    return 0;
}

/* ---------------------------------------------------------------- loading */

static int take(struct text_encoder *t, const char *dir, const struct arch *a,
                const struct decoder *text, struct err *e)
{
    struct decoder *d = &t->d;
    struct checkpoint c;
    struct stored how = {0};
    d->dev = text->dev;
    d->comm = text->comm;
    d->dtype = text->dtype;
    d->quant = text->quant;
    d->busy_ns = text->busy_ns;
    d->sample = text->sample;
    d->encodes = true;
    if (d->spec.hidden != text->spec.hidden)
        return err_set(e, ERR_VALIDATION, "%s: an encoder of %u numbers beside a decoder of %u",
                       dir, d->spec.hidden, text->spec.hidden);
    if (stored_read(&how, dir, e) ||
        split_make(&d->split, &d->spec, d->comm->rank, d->comm->world, e) ||
        checkpoint_open(&c, dir, a, e))
        return -1;
    const int rc = decoder_load(d, a, &c, &how, e);
    checkpoint_close(&c);
    return rc;
}

int text_encoder_load(const char *dir, const struct decoder *text, struct text_encoder **out,
                      struct err *e)
{
    char path[PATH_MAX];
    const struct arch *a = NULL;
    *out = NULL;
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    struct text_encoder *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e);
    t->d.ops = text->ops;
    int rc = arch_configure_encoder(path, &a, &t->d.spec, e);
    if (rc == 0 && a && !(rc = take(t, dir, a, text, e))) {
        *out = t;
        return 0;
    }
    text_encoder_free(t);
    return rc;
}

void text_encoder_free(struct text_encoder *t)
{
    if (!t)
        return;
    free_memory(t);
    decoder_free(&t->d);
    free(t);
}
