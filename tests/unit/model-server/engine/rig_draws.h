/* rig_draws.h - a device of the rig that samples. Enqueued work is copied and runs as late as
 * allowed: when drawn() waits for it, or before later synchronous work. So an engine that reads
 * results too early, or leaves data to be read later, fails here. The host's sampler chooses the
 * tokens. */
#ifndef TEST_ENGINE_RIG_DRAWS_H
#define TEST_ENGINE_RIG_DRAWS_H
#include "model-server/sample/sample.h"
#include <math.h>

enum { JOB_ROWS = 160, JOB_TOKENS = 2400, JOB_TOP = 8, MOST_JOBS = 8 };
struct job {
    struct ragged b;
    uint32_t ids[JOB_TOKENS], pos[JOB_TOKENS], slots[JOB_TOKENS], drawn[JOB_TOKENS],
        window_slots[JOB_TOKENS];
    uint32_t out_rows[JOB_ROWS], blocks[JOB_ROWS][64], windows[JOB_ROWS][64], n, set;
    struct span spans[JOB_ROWS];
    struct draw v[JOB_ROWS];
    struct tally tally[JOB_ROWS];
    uint32_t mask[JOB_ROWS][(VOCAB + 31) / 32];
    uint32_t never[JOB_ROWS][4], n_never[JOB_ROWS];
};
static struct job jobs[MOST_JOBS];
static uint32_t n_jobs;
static struct drawn board[2][JOB_ROWS];
static struct scored best[2][JOB_ROWS * JOB_TOP];
static float fetched[2][JOB_ROWS * VOCAB];

static void run_model(struct model *m, const struct ragged *b, float *logits);

static void choose_one(struct job *j, uint32_t i, float *row, struct drawn *out, struct scored *top)
{
    struct err e = ERR_INIT;
    struct filter_mem x;
    const struct draw *v = &j->v[i];
    uint32_t id[JOB_TOP];
    float lp[JOB_TOP];
    struct sampling p = {
        .temperature = v->temperature,
        .top_p = v->top_p,
        .typical_p = v->typical_p,
        .min_p = v->min_p,
        .top_k = v->top_k,
        .sample = v->sample,
        .raw_logprobs = v->raw_logprobs,
        .seed = v->seed,
        .penalties = {v->repetition, v->frequency, v->openai_presence, v->openai_frequency}};
    if (v->last != DRAW_KNOWN && v->counts)
        assert_int_equal(tally_add(&j->tally[i], board[j->b.drawn_set][v->last].id, true, &e), 0);
    for (uint32_t k = 0; k < j->n_never[i]; k++)
        row[j->never[i][k]] = -INFINITY;
    assert_int_equal(filter_mem_init(&x, VOCAB, &e), 0);
    struct sampled s = {.n_top = v->n_top, .top_id = id, .top_logprob = lp};
    int rc = sample_row(&p, &j->tally[i], 0, v->mask ? j->mask[i] : NULL, v->position, row, VOCAB,
                        &x, &s, &e);
    *out = (struct drawn){s.id, s.logprob, rc ? DRAW_NOTHING_ALLOWED : DRAW_DONE, s.n_top};
    for (uint32_t k = 0; !rc && k < s.n_top; k++)
        top[k] = (struct scored){id[k], lp[k]};
    tally_free(&j->tally[i]);
    filter_mem_free(&x);
}

static void run_job(struct model *m, struct job *j)
{
    static float logits[JOB_ROWS * VOCAB];
    uint32_t top = 0, n_fetched = 0;
    for (uint32_t i = 0; j->b.drawn && i < j->b.n_tokens; i++)
        if (j->drawn[i] != DRAW_KNOWN)
            j->ids[i] = board[j->b.drawn_set][j->drawn[i]].id;
    run_model(m, &j->b, logits);
    for (uint32_t i = 0; i < j->n; i++) {
        float *row = logits + (size_t)i * VOCAB;
        if (j->v[i].fetch)
            memcpy(fetched[j->set] + (size_t)n_fetched++ * VOCAB, row, VOCAB * sizeof(*row));
        else
            choose_one(j, i, row, &board[j->set][i], best[j->set] + top);
        top += j->v[i].n_top;
    }
}

/* Runs all enqueued work, or up to the last job that fills `set`. */
static void run_jobs(struct model *m, int set)
{
    uint32_t n = n_jobs;
    while (set >= 0 && n && jobs[n - 1].set != (uint32_t)set)
        n--;
    for (uint32_t i = 0; i < n; i++)
        run_job(m, &jobs[i]);
    memmove(jobs, jobs + n, (n_jobs - n) * sizeof(*jobs));
    n_jobs -= n;
    for (uint32_t i = 0; i < n_jobs; i++) { /* they contain pointers into themselves */
        struct job *j = &jobs[i];
        j->b.ids = j->ids, j->b.pos = j->pos, j->b.slots = j->slots, j->b.spans = j->spans;
        j->b.out_rows = j->out_rows, j->b.drawn = j->b.drawn ? j->drawn : NULL;
        j->b.window_slots = j->window_slots;
        for (uint32_t k = 0; k < j->b.n_spans; k++)
            j->spans[k].blocks = j->blocks[k], j->spans[k].windows = j->windows[k];
    }
}

static void copy_batch(struct job *j, const struct ragged *b)
{
    assert_true(b->n_tokens <= JOB_TOKENS && b->n_spans <= JOB_ROWS && b->n_out <= JOB_ROWS);
    j->b = *b;
    memcpy(j->ids, b->ids, b->n_tokens * 4), memcpy(j->pos, b->pos, b->n_tokens * 4);
    memcpy(j->slots, b->slots, b->n_tokens * 4);
    memcpy(j->out_rows, b->out_rows, b->n_out * 4);
    if (b->drawn)
        memcpy(j->drawn, b->drawn, b->n_tokens * 4);
    memcpy(j->spans, b->spans, b->n_spans * sizeof(*b->spans));
    for (uint32_t i = 0; i < b->n_spans; i++) {
        uint32_t n = (b->spans[i].kv_len + BS - 1) / BS;
        assert_true(n <= 64);
        memcpy(j->blocks[i], b->spans[i].blocks, n * 4);
        j->spans[i].blocks = j->blocks[i], j->spans[i].windows = j->windows[i];
        if (b->spans[i].windows)
            memcpy(j->windows[i], b->spans[i].windows, n * 4);
    }
    if (b->window_slots)
        memcpy(j->window_slots, b->window_slots, b->n_tokens * 4);
    j->b.window_slots = j->window_slots;
    j->b.ids = j->ids, j->b.pos = j->pos, j->b.slots = j->slots, j->b.spans = j->spans;
    j->b.out_rows = j->out_rows, j->b.drawn = b->drawn ? j->drawn : NULL;
}

static void copy_row(struct job *j, uint32_t i, const struct draw *v)
{
    struct err e = ERR_INIT;
    j->v[i] = *v;
    j->tally[i] = (struct tally){0};
    j->n_never[i] = 0;
    if (v->fetch)
        return;
    for (uint32_t k = 0; v->counts && k < v->n_counts; k++)
        for (uint32_t c = 0; c < v->counts[k].all; c++)
            tally_add(&j->tally[i], v->counts[k].id, c < v->counts[k].generated, &e);
    assert_int_equal(j->tally[i].length, v->length);
    if (v->mask)
        memcpy(j->mask[i], v->mask, sizeof(j->mask[i]));
    for (int k = 0; k < 2; k++)
        for (size_t c = 0; c < v->forbid[k].n; c++)
            j->never[i][j->n_never[i]++] = v->forbid[k].id[c];
    assert_true(v->n_top <= JOB_TOP && j->n_never[i] <= 4 && !v->n_bias);
}

int model_draw(struct model *m, const struct ragged *b, const struct draw *v, int set,
               struct err *e)
{
    m->forwards++;
    m->fed += b->drawn != NULL;
    if (m->fail_in && --m->fail_in == 0)
        return err_set(e, ERR_SYSTEM, "broken on purpose");
    assert_true(b->n_out && n_jobs < MOST_JOBS);
    struct job *j = &jobs[n_jobs++];
    copy_batch(j, b);
    j->n = b->n_out, j->set = (uint32_t)set;
    for (uint32_t i = 0; i < b->n_out; i++)
        copy_row(j, i, &v[i]);
    return 0;
}

static int drawn(struct device *d, int set, struct draw_results *out, struct err *e)
{
    (void)d, (void)e;
    run_jobs(&fake, set);
    *out = (struct draw_results){board[set], best[set], fetched[set]};
    return 0;
}

static int draw_unused(struct device *d, const struct logits *x, const struct draw *v, uint32_t n,
                       int set, struct err *e)
{
    (void)d, (void)x, (void)v, (void)n, (void)set;
    return err_set(e, ERR_SYSTEM, "the rig's model draws");
}
#endif
