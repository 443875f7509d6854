/* lora.c - low-rank updates of many adapters in one step (S-LoRA, arXiv 2311.03285).
 *
 * Two loops, each divided among all threads: u = A x, then y += scale u B. A row of A or B is
 * widened to fp32 once for a tile of tokens. Each element of u is one dot product and each of y
 * one chain over the ranks, ascending. So the division of the work does not change a bit. */
#include "model-server/backend/cpu/cpu.h"

/* Tokens that share a widened row; columns of y per piece; rows of A per piece. */
enum { TILE_TOKENS = 16, TILE_COLUMNS = 1024, TILE_RANKS = 4 };

/* Tokens of one span for one part of its adapter. */
struct lora_job {
    const struct lora *p;
    uint32_t first, n; /* rows of x and y */
    float *u;          /* [n][p->rank] */
};
struct lora_run {
    struct device *d;
    float *y;
    const float *x;
    uint32_t y_width, x_width, n_jobs;
    struct lora_job *jobs;
};

/* Pieces of a job in each loop. */
static size_t rank_pieces(const struct lora_job *j)
{
    return (j->p->rank + TILE_RANKS - 1) / TILE_RANKS;
}
static size_t column_pieces(const struct lora_job *j)
{
    return (j->p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

/* Elements [at, at + n) of a row as fp32, in place or in `room`. */
static const float *widened(const struct device *d, const void *row, enum dtype t, uint32_t at,
                            uint32_t n, float *room)
{
    if (t == DT_F32)
        return (const float *)row + at;
    (t == DT_F16 ? d->kern.widen_f16 : d->kern.widen_bf16)(room, (const uint16_t *)row + at, n);
    return room;
}

/* Some rows of A: as many elements of u for every token of the job. A long row is processed in
 * parts that fit the thread's scratch memory, and so is the sum, for every type. */
enum { DOT_PART = THREAD_SCRATCH / (int)sizeof(float) };
static void multiply_a(const struct lora_run *r, const struct lora_job *j, size_t piece,
                       float *room)
{
    const struct lora *p = j->p;
    uint32_t begin = (uint32_t)piece * TILE_RANKS, end = begin + TILE_RANKS;
    for (uint32_t i = begin; i < end && i < p->rank; i++)
        for (uint32_t k = 0; k < r->x_width; k += DOT_PART) {
            uint32_t n = r->x_width - k < DOT_PART ? r->x_width - k : DOT_PART;
            const float *a = widened(r->d, p->a[i], p->dtype, k, n, room);
            for (uint32_t t = 0; t < j->n; t++) {
                const float *x = r->x + (size_t)(j->first + t) * r->x_width + k;
                float s = r->d->kern.dot(x, a, n), *u = &j->u[(size_t)t * p->rank + i];
                *u = k ? *u + s : s;
            }
        }
}

static void multiply_b(const struct lora_run *r, const struct lora_job *j, size_t piece,
                       float *room)
{
    const struct lora *p = j->p;
    uint32_t at = (uint32_t)piece * TILE_COLUMNS;
    uint32_t n = p->n - at < TILE_COLUMNS ? p->n - at : TILE_COLUMNS;
    for (uint32_t i = 0; i < p->rank; i++) {
        const float *b = widened(r->d, p->b[i], p->dtype, at, n, room);
        for (uint32_t t = 0; t < j->n; t++)
            r->d->kern.axpy(r->y + (size_t)(j->first + t) * r->y_width + p->first + at, b,
                            p->scale * j->u[(size_t)t * p->rank + i], n);
    }
}

/* Pieces [begin, end) of the concatenated jobs. */
static void pieces(struct lora_run *r, int thread, size_t begin, size_t end,
                   size_t (*count)(const struct lora_job *j),
                   void (*run)(const struct lora_run *r, const struct lora_job *j, size_t piece,
                               float *room))
{
    float *room = (float *)(void *)cpu_thread_scratch(r->d, thread);
    size_t at = 0;
    for (uint32_t i = 0; i < r->n_jobs && at < end; i++) {
        size_t n = count(&r->jobs[i]);
        for (size_t k = begin > at ? begin - at : 0; k < n && at + k < end; k++)
            run(r, &r->jobs[i], k, room);
        at += n;
    }
}
static void run_a(void *arg, int thread, size_t begin, size_t end)
{
    pieces(arg, thread, begin, end, rank_pieces, multiply_a);
}
static void run_b(void *arg, int thread, size_t begin, size_t end)
{
    pieces(arg, thread, begin, end, column_pieces, multiply_b);
}

/* jobs NULL: only count. Returns the floats of all u. */
static size_t list(const struct ragged *b, const struct lora_set *of, struct lora_job *jobs,
                   float *u, uint32_t *n_jobs)
{
    size_t floats = 0;
    uint32_t n = 0;
    for (uint32_t s = 0; s < b->n_spans; s++) {
        const struct span *sp = &b->spans[s];
        const struct lora_set *set = &of[sp->adapter];
        for (uint32_t k = 0; k < set->n_parts; k++)
            for (uint32_t t = 0; t < sp->n; t += TILE_TOKENS) {
                uint32_t rows = sp->n - t < TILE_TOKENS ? sp->n - t : TILE_TOKENS;
                if (jobs)
                    jobs[n] = (struct lora_job){&set->part[k], sp->first + t, rows, u + floats};
                floats += (size_t)rows * set->part[k].rank;
                n++;
            }
    }
    *n_jobs = n;
    return floats;
}

void cpu_lora(struct device *d, float *y, uint32_t y_width, const float *x, uint32_t x_width,
              const struct lora_set *of)
{
    struct lora_run r = {.d = d, .y = y, .x = x, .y_width = y_width, .x_width = x_width};
    size_t floats = list(d->batch, of, NULL, NULL, &r.n_jobs), n = 0;
    if (!r.n_jobs)
        return;
    size_t head = (r.n_jobs * sizeof(*r.jobs) + 63) & ~(size_t)63;
    char *room = cpu_scratch(d, SCRATCH_LORA, head + floats * sizeof(float));
    if (!room)
        return;
    r.jobs = (struct lora_job *)(void *)room;
    list(d->batch, of, r.jobs, (float *)(void *)(room + head), &r.n_jobs);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        n += rank_pieces(&r.jobs[i]);
    pool_run(d->pool, run_a, &r, n, 1);
    n = 0;
    for (uint32_t i = 0; i < r.n_jobs; i++)
        n += column_pieces(&r.jobs[i]);
    pool_run(d->pool, run_b, &r, n, 1);
}
