/* draw.c - sampling on the device. The requests of the rows are copied before the step. The kernel
 * writes its results to pinned memory itself: a copy after it would keep the device waiting. An
 * event says when they are complete. */
#include "model-server/backend/cuda/cuda.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const char *const remedy = "lower --max-batch-prefill-tokens or --kv-cache-memory";

/* ---------------------------------------------------------------- room */

static int fresh_pinned(struct device *d, void **p, size_t bytes, struct err *e)
{
    cudaFreeHost(*p);
    *p = NULL;
    cudaError_t rc = cudaMallocHost(p, bytes);
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, "pinned memory for what is chosen", e);
}

/* Both sets keep their contents: a later step may still need a token of the other one. */
static int grow_board(struct device *d, uint32_t rows, struct err *e)
{
    struct drawing *w = &d->draw;
    if (rows <= w->cap_rows)
        return 0;
    rows += rows / 2;
    struct drawn *board =
        cuda_take(d, (size_t)2 * rows * sizeof(*board), "what is chosen", remedy, e);
    if (!board)
        return -1;
    cudaError_t rc = cudaSuccess;
    for (size_t s = 0; s < 2 && w->cap_rows && rc == cudaSuccess; s++)
        rc = cudaMemcpyAsync(board + s * rows, w->board + s * w->cap_rows,
                             w->cap_rows * sizeof(*board), cudaMemcpyDeviceToDevice, d->stream);
    cuda_retire(d, w->board); /* this step's ids may come from it */
    w->board = board, w->cap_rows = rows;
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, "moving what is chosen", e);
}

static int grow_set(struct device *d, struct draw_set *s, size_t row_bytes, struct err *e)
{
    if (s->n > s->cap_n) {
        s->cap_n = 0;
        if (fresh_pinned(d, (void **)&s->v, s->n * sizeof(*s->v) * 3 / 2, e))
            return -1;
        s->cap_n = s->n * 3 / 2;
    }
    if (s->n_top > s->cap_top) {
        s->cap_top = 0;
        if (fresh_pinned(d, (void **)&s->top, s->n_top * sizeof(*s->top), e))
            return -1;
        s->cap_top = s->n_top;
    }
    size_t bytes = s->n_fetched * row_bytes;
    if (bytes > s->cap_rows) {
        s->cap_rows = 0;
        if (fresh_pinned(d, (void **)&s->rows, bytes, e))
            return -1;
        s->cap_rows = bytes;
    }
    if (s->done)
        return 0;
    cudaError_t rc = cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming);
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, "making an event", e);
}

void draw_free(struct device *d)
{
    struct drawing *w = &d->draw;
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(w->set[i].v);
        cudaFreeHost(w->set[i].top);
        cudaFreeHost(w->set[i].rows);
        if (w->set[i].done)
            cudaEventDestroy(w->set[i].done);
    }
    cudaFree(w->board);
    outbox_free(&w->box);
}

/* ---------------------------------------------------------------- what the rows ask for */

static size_t adds_of(const struct draw *v) { return v->forbid[0].n + v->forbid[1].n + v->n_bias; }

/* Upper bound of the words after the views. */
static size_t words_of(const struct draw *v, uint32_t vocab)
{
    return 2 * adds_of(v) + (v->counts ? (size_t)3 * v->n_counts : 0) +
           (v->mask ? (vocab + (size_t)31) / 32 : 0);
}

static uint32_t put_adds(const struct draw *v, uint32_t *words)
{
    const float never = -INFINITY;
    size_t n = adds_of(v), at = 0;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < v->forbid[i].n; k++, at++) {
            words[at] = v->forbid[i].id[k];
            memcpy(&words[n + at], &never, sizeof(never));
        }
    if (v->n_bias) {
        memcpy(words + at, v->bias_id, v->n_bias * sizeof(*words));
        memcpy(words + n + at, v->bias, v->n_bias * sizeof(*words));
    }
    return (uint32_t)(2 * n);
}

/* The used entries of the counts. */
static uint32_t put_counts(const struct draw *v, uint32_t *words)
{
    uint32_t n = 0;
    for (uint32_t i = 0; v->counts && i < v->n_counts; i++)
        if (v->counts[i].all)
            memcpy(words + (size_t)3 * n++, &v->counts[i], sizeof(v->counts[i]));
    return n;
}

static bool reshapes(const struct draw *v)
{
    return v->temperature != 1 || v->top_k || v->top_p < 1 || v->min_p > 0 || v->typical_p < 1;
}

static struct draw_view view_of(const struct draw *v)
{
    return (struct draw_view){.temperature = v->temperature,
                              .top_p = v->top_p,
                              .min_p = v->min_p,
                              .typical_p = v->typical_p,
                              .repetition = v->repetition,
                              .frequency = v->frequency,
                              .openai_presence = v->openai_presence,
                              .openai_frequency = v->openai_frequency,
                              .seed = {(uint32_t)v->seed, (uint32_t)(v->seed >> 32)},
                              .position = {(uint32_t)v->position, (uint32_t)(v->position >> 32)},
                              .top_k = v->top_k,
                              .n_top = v->n_top,
                              .fetch = v->fetch,
                              .sample = v->sample,
                              .raw = v->raw_logprobs && reshapes(v),
                              .penalised = v->counts != NULL,
                              .length = v->length,
                              .mask = DRAW_KNOWN,
                              .last = DRAW_KNOWN};
}

/* Writes views and words to the pinned record. */
static void describe(struct device *d, const struct draw *v, uint32_t n, int set, uint32_t vocab,
                     char *host, size_t views)
{
    const struct drawing *w = &d->draw;
    uint32_t *words = (uint32_t *)(void *)(host + views), at = 0, top = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct draw_view x = view_of(&v[i]);
        x.out = (uint32_t)set * w->cap_rows + i;
        x.host = w->set[set].v + i, x.host_top = w->set[set].top + top;
        top += v[i].n_top;
        if (v[i].fetch) {
            memcpy(host + i * sizeof(x), &x, sizeof(x));
            continue;
        }
        x.adds = at, x.n_adds = (uint32_t)adds_of(&v[i]);
        at += put_adds(&v[i], words + at);
        x.counts = at, x.n_counts = put_counts(&v[i], words + at);
        at += 3 * x.n_counts;
        if (v[i].mask) {
            x.mask = at;
            memcpy(words + at, v[i].mask, (vocab + (size_t)31) / 32 * sizeof(*words));
            at += (vocab + 31) / 32;
        }
        if (v[i].last != DRAW_KNOWN)
            x.last = (uint32_t)d->batch->drawn_set * w->cap_rows + v[i].last;
        memcpy(host + i * sizeof(x), &x, sizeof(x));
    }
}

/* ---------------------------------------------------------------- the operation */

/* Blocks per row: depends only on the vocabulary, because a log-probability's last bits depend on
 * it. */
static uint32_t team_of(const struct device *d, uint32_t vocab)
{
    uint32_t n = 1;
    while (d->clusters && n < 8 && vocab / (2 * n) >= 2048)
        n *= 2;
    return n;
}

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

/* Where w->used bytes of requests go: into the record of the batch, or, if they are many (masks,
 * penalties), by a copy of their own. */
static int room_for(struct device *d, char **host, char **dev, struct err *e)
{
    struct drawing *w = &d->draw;
    if (w->used <= d->b.draws_bytes) {
        *host = d->b.draws_host, *dev = d->b.draws;
        d->b.dirty = true;
        return 0;
    }
    if (outbox_next(d, &w->box, w->used, "what is asked for", remedy, e))
        return -1;
    *host = outbox_host(&w->box), *dev = w->box.dev;
    w->dirty = true;
    return 0;
}

int cuda_draw(struct device *d, const struct logits *x, const struct draw *v, uint32_t n, int set,
              struct err *e)
{
    struct drawing *w = &d->draw;
    struct draw_set *s = &w->set[set];
    size_t views = align64(n * sizeof(struct draw_view)), words = 0;
    assert(d->batch && w->open == NULL);
    if (x->vocab > DRAW_MOST_VOCAB)
        return err_set(e, ERR_VALIDATION, "a vocabulary of %u is too large", x->vocab);
    w->pitch = (x->vocab + 3) & ~3u; /* rows are read four at a time */
    w->vocab = x->vocab;
    w->scores = x->world == 1 && w->pitch == x->vocab
                    ? x->p
                    : cuda_work(d, WORK_DRAW, (size_t)n * w->pitch * sizeof(float));
    if (!w->scores || d->rehearsal)
        return 0; /* step_end() says why */
    s->n = n, s->n_top = s->n_fetched = 0;
    for (uint32_t i = 0; i < n; i++) {
        words += words_of(&v[i], x->vocab);
        s->n_top += v[i].n_top;
        s->n_fetched += v[i].fetch;
    }
    if (words > UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "too many tokens have penalties or biases");
    w->used = views + words * sizeof(uint32_t);
    char *host, *dev;
    if (grow_board(d, n, e) || grow_set(d, s, x->vocab * sizeof(float), e) ||
        room_for(d, &host, &dev, e))
        return -1;
    describe(d, v, n, set, x->vocab, host, views);
    struct draw_args a = {.logits = *x,
                          .v = (void *)dev,
                          .words = (void *)(dev + views),
                          .scores = w->scores,
                          .board = w->board,
                          .rows = n,
                          .pitch = w->pitch,
                          .team = team_of(d, x->vocab)};
    a.kept = d->features & CUDA_DRAW_SHARED && draw_kept_bytes(x->vocab, a.team) <= d->shared_block;
    w->open = s;
    w->fetch = (const struct draw_view *)(void *)host;
    RECORD(d, draw_launch, a);
    return 0;
}

void draw_send(struct device *d)
{
    if (d->draw.dirty)
        outbox_send(d, &d->draw.box, d->draw.used);
    d->draw.dirty = false;
}

/* Call it when the step is enqueued: enqueues the copies of rows for the host. */
void draw_collect(struct device *d)
{
    struct drawing *w = &d->draw;
    struct draw_set *s = w->open;
    w->open = NULL;
    if (d->fault.kind != ERR_NONE)
        return;
    cudaError_t rc = cudaSuccess;
    uint32_t to = 0;
    for (uint32_t i = 0; i < s->n && rc == cudaSuccess; i++)
        if (w->fetch[i].fetch)
            rc =
                cudaMemcpyAsync(s->rows + (size_t)to++ * w->vocab, w->scores + (size_t)i * w->pitch,
                                w->vocab * sizeof(float), cudaMemcpyDeviceToHost, d->stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(s->done, d->stream);
    if (rc != cudaSuccess)
        cuda_fault(d, rc, "bringing what was chosen");
}

int cuda_drawn(struct device *d, int set, struct draw_results *out, struct err *e)
{
    const struct draw_set *s = &d->draw.set[set];
    if (cuda_wait(d, s->done, "choosing tokens", e))
        return -1;
    *out = (struct draw_results){s->v, s->top, s->rows};
    return 0;
}
