#include "model-server/engine/step.h"
#include "common/clock.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Logits are vocab * 4 bytes a row. Prompts whose log-probabilities are wanted need a row for each
 * token; they are walked through in passes of this much memory. */
enum { PASS_BYTES = 64 << 20, DETOK_CONTEXT = 5 };

int stepper_init(struct stepper *st, struct model *m, const struct backend_ops *ops,
                 struct device *dev, const struct tokenizer *tok, uint32_t block_size,
                 struct err *e)
{
    *st = (struct stepper){
        .model = m, .ops = ops, .dev = dev, .tok = tok, .block_size = block_size, .threads = 1};
    st->vocab = model_info(m)->vocab;
    st->by_length = model_info(m)->by_length;
    if (ops->host_run)
        st->threads = ops->host_threads(dev);
    st->filter = calloc((size_t)st->threads, sizeof(*st->filter));
    st->mask_words = (st->vocab + (size_t)31) / 32;
    st->mask = malloc((size_t)st->threads * st->mask_words * sizeof(*st->mask));
    if (!st->filter || !st->mask)
        return err_nomem(e);
    for (int i = 0; i < st->threads; i++)
        if (filter_mem_init(&st->filter[i], st->vocab, e))
            return -1;
    return 0;
}

void stepper_free(struct stepper *st)
{
    free(st->ids), free(st->pos), free(st->slots), free(st->out_rows);
    free(st->spans), free(st->logits), free(st->ahead), free(st->gen), free(st->top_id),
        free(st->top_logprob);
    for (int i = 0; st->filter && i < st->threads; i++)
        filter_mem_free(&st->filter[i]);
    free(st->filter);
    free(st->mask);
    buf_free(&st->text);
    buf_free(&st->piece);
    *st = (struct stepper){0};
}

uint64_t stepper_row_bytes(const struct stepper *st) { return (uint64_t)st->vocab * sizeof(float); }

/* Replace *p by room for n of `size` bytes; contents are lost. */
static int renew(void *p, size_t n, size_t size)
{
    void *fresh = malloc(n * size);
    if (!fresh)
        return -1;
    free(*(void **)p);
    *(void **)p = fresh;
    return 0;
}

static uint32_t grown(uint32_t cap, uint32_t n) { return n > cap + cap / 2 ? n : cap + cap / 2; }

int stepper_reserve(struct stepper *st, uint32_t tokens, uint32_t rows, struct err *e)
{
    if (tokens > st->cap_tokens) {
        uint32_t n = grown(st->cap_tokens, tokens);
        st->cap_tokens = 0;
        if (renew(&st->ids, n, 4) || renew(&st->pos, n, 4) || renew(&st->slots, n, 4) ||
            renew(&st->out_rows, n, 4))
            return err_nomem(e);
        st->cap_tokens = n;
    }
    if (rows > st->cap_rows) {
        st->cap_rows = 0;
        if (renew(&st->logits, rows, stepper_row_bytes(st)))
            return err_nomem(e);
        st->cap_rows = rows;
    }
    return 0;
}

static int reserve_lists(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint64_t top = 0, spans = n;
    for (uint32_t i = 0; i < n; i++) {
        top += v[i]->top_n;
        spans += st->by_length ? v[i]->step : 0; /* see put() */
    }
    if (n > st->cap_gen) {
        st->cap_gen = 0;
        if (renew(&st->gen, n, sizeof(*st->gen)))
            return err_nomem(e);
        st->cap_gen = n;
    }
    if (spans > st->cap_spans) {
        st->cap_spans = 0;
        if (spans > UINT32_MAX || renew(&st->spans, spans, sizeof(*st->spans)))
            return err_nomem(e);
        st->cap_spans = (uint32_t)spans;
    }
    if (top > UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "too many alternatives are asked for");
    if (top > st->cap_top) {
        st->cap_top = 0;
        if (renew(&st->top_id, top, sizeof(*st->top_id)) ||
            renew(&st->top_logprob, top, sizeof(*st->top_logprob)))
            return err_nomem(e);
        st->cap_top = (uint32_t)top;
    }
    return 0;
}

/* ---------------------------------------------------------------- passes through the model */

/* A token's rotation may look at the length of its sequence when it was first computed: that of the
 * prompt, or its own position's. Tokens that are computed again get what they had, one span each.
 */
static void put(struct stepper *st, struct ragged *b, const struct seq *s, uint32_t len)
{
    const uint32_t end = s->start + len;
    for (uint32_t p = s->start, n; p < end; p += n) {
        n = end - p;
        if (st->by_length && end > s->n_prompt)
            n = p < s->n_prompt ? s->n_prompt - p : 1;
        st->spans[b->n_spans++] = (struct span){.first = b->n_tokens + (p - s->start),
                                                .n = n,
                                                .kv_len = p + n,
                                                .blocks = s->blocks,
                                                .seq_len = p < s->n_prompt ? s->n_prompt : p + n};
    }
    for (uint32_t p = s->start; p < end; p++) {
        st->ids[b->n_tokens] = s->ids[p];
        st->pos[b->n_tokens] = p;
        st->slots[b->n_tokens] =
            s->blocks[p / st->block_size] * st->block_size + p % st->block_size;
        b->n_tokens++;
    }
}

static struct ragged empty(const struct stepper *st)
{
    return (struct ragged){.ids = st->ids,
                           .pos = st->pos,
                           .slots = st->slots,
                           .spans = st->spans,
                           .out_rows = st->out_rows};
}

/* The next tokens of the prompt alone, all their logits wanted: log-probabilities of what follows.
 */
static int prompt_pass(struct stepper *st, struct seq *s, uint32_t len, struct err *e)
{
    struct ragged b = empty(st);
    if (stepper_reserve(st, len, len, e))
        return -1;
    b = empty(st);
    put(st, &b, s, len);
    for (b.n_out = 0; b.n_out < len; b.n_out++)
        st->out_rows[b.n_out] = b.n_out;
    if (model_forward(st->model, &b, st->logits, e))
        return -1;
    for (uint32_t i = 0; i < len && s->start + i + 1 < s->n_prompt; i++) {
        uint32_t next = s->start + i + 1;
        float *row = st->logits + (size_t)i * st->vocab;
        s->prompt_logprob[next] = row_logprob(row, st->vocab, s->ids[next], st->filter);
        if (s->top_n)
            row_best(row, st->vocab, s->top_n, st->filter, s->prompt_top + (size_t)next * s->top_n,
                     s->prompt_top_logprob + (size_t)next * s->top_n);
    }
    s->start += len;
    return 0;
}

/* Leave the last token of the chunk to the joint pass, unless it is the prompt's and yields nothing
 * new. */
static int walk_prompt(struct stepper *st, struct seq *s, struct err *e)
{
    uint64_t rows = PASS_BYTES / stepper_row_bytes(st);
    uint32_t end = s->cached + s->step, most = rows ? (uint32_t)rows : 1;
    bool all = end < s->n_prompt;
    while (s->start + !all < end) {
        uint32_t left = end - !all - s->start;
        if (prompt_pass(st, s, left < most ? left : most, e))
            return -1;
    }
    return 0;
}

static bool is_ahead(const struct stepper *st, const struct seq *s)
{
    return st->ahead_no && s->ahead == st->ahead_no;
}

static int joint_pass(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint64_t tokens = 0;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && !is_ahead(st, v[i])) {
            tokens += v[i]->cached + v[i]->step - v[i]->start;
            rows += !seq_prefilling(v[i]);
        }
    if (!tokens)
        return 0;
    if (tokens > INT32_MAX)
        return err_set(e, ERR_VALIDATION, "a step of %llu tokens is too large",
                       (unsigned long long)tokens);
    if (stepper_reserve(st, (uint32_t)tokens, rows, e))
        return -1;
    struct ragged b = empty(st);
    for (uint32_t i = 0; i < n; i++) {
        if (!seq_live(v[i]) || is_ahead(st, v[i]) || v[i]->start == v[i]->cached + v[i]->step)
            continue;
        put(st, &b, v[i], v[i]->cached + v[i]->step - v[i]->start);
        if (!seq_prefilling(v[i]))
            st->out_rows[b.n_out++] = b.n_tokens - 1;
    }
    return model_forward(st->model, &b, st->logits, e);
}

static int forward(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        v[i]->start = v[i]->cached;
        if (seq_live(v[i]) && v[i]->prompt_logprob && v[i]->cached < v[i]->n_prompt &&
            walk_prompt(st, v[i], e))
            return -1;
    }
    return joint_pass(st, v, n, e);
}

int stepper_reserve_ahead(struct stepper *st, uint32_t rows, struct err *e)
{
    if (rows <= st->cap_ahead)
        return 0;
    st->cap_ahead = st->ahead_no = 0;
    if (renew(&st->ahead, rows, stepper_row_bytes(st)))
        return err_nomem(e);
    st->cap_ahead = rows;
    return 0;
}

int stepper_ahead(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint32_t no = st->ahead_no + 1 ? st->ahead_no + 1 : 1;
    st->ahead_no = 0; /* nothing is ahead until this has worked */
    int64_t t0 = clock_ns();
    if (reserve_lists(st, v, n, e) || stepper_reserve(st, n, 0, e) ||
        stepper_reserve_ahead(st, n, e))
        return -1;
    struct ragged b = empty(st);
    for (uint32_t i = 0; i < n; i++) {
        if (!seq_live(v[i]))
            continue;
        assert(v[i]->step == 1 && !seq_prefilling(v[i]));
        v[i]->start = v[i]->cached;
        v[i]->ahead = no;
        v[i]->ahead_row = b.n_out;
        put(st, &b, v[i], 1);
        st->out_rows[b.n_out++] = b.n_tokens - 1;
    }
    if (model_forward(st->model, &b, st->ahead, e))
        return -1;
    st->ahead_no = no;
    st->ahead_ns = clock_ns() - t0;
    return 0;
}

/* ---------------------------------------------------------------- what comes of it */

/* The sequences that get a token now, or have failed: which row is theirs. */
static void list_gens(struct stepper *st, struct seq **v, uint32_t n)
{
    uint32_t row = 0, top = 0;
    st->n_gen = 0;
    st->early_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        if (s->done || (seq_live(s) && seq_prefilling(s)))
            continue;
        struct gen *g = &st->gen[st->n_gen++];
        *g = (struct gen){.seq = s, .first = s->n == s->n_prompt};
        g->token = (struct sampled){
            .n_top = s->top_n, .top_id = st->top_id + top, .top_logprob = st->top_logprob + top};
        if (!seq_live(s))
            continue;
        if (is_ahead(st, s))
            st->early_ns = st->ahead_ns;
        g->row = is_ahead(st, s) ? st->ahead + (size_t)s->ahead_row * st->vocab
                                 : st->logits + (size_t)row++ * st->vocab;
        top += s->top_n;
    }
}

/* The thread's mask, filled for `s`; NULL (and no error) where any token may come. */
static const uint32_t *mask_for(struct stepper *st, const struct seq *s, int thread, struct err *e)
{
    uint32_t *mask = st->mask + (size_t)thread * st->mask_words;
    if (!s->constraint ||
        constraint_mask(s->constraint, s->grammar_state, grammars_tokens(s->grammars), mask, e))
        return NULL;
    return mask;
}

static void sample_range(void *arg, int thread, size_t begin, size_t end)
{
    struct stepper *st = arg;
    for (size_t i = begin; i < end; i++) {
        struct gen *g = &st->gen[i];
        struct seq *s = g->seq;
        struct err why = ERR_INIT;
        if (!seq_live(s))
            continue;
        const uint32_t *mask = mask_for(st, s, thread, &why);
        if (!s->constraint) /* a grammar alone decides when it is over */
            stop_forbid(&s->stop, g->row, st->vocab);
        if (why.kind || sample_row(&s->sampling, &s->tally, s->ids[s->n - 1], mask, s->n, g->row,
                                   st->vocab, &st->filter[thread], &g->token, &why))
            seq_fail(s, why.msg);
    }
}

/* Choose a token for every sequence whose last logits are there: rows are independent. */
static void sample_all(struct stepper *st, struct seq **v, uint32_t n)
{
    list_gens(st, v, n);
    if (st->threads > 1 && st->n_gen > 1)
        st->ops->host_run(st->dev, sample_range, st, st->n_gen);
    else
        sample_range(st, 0, 0, st->n_gen);
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]))
            v[i]->cached += v[i]->step;
    for (uint32_t i = 0; i < st->n_gen; i++) {
        struct err why = ERR_INIT;
        struct seq *s = st->gen[i].seq;
        if (seq_live(s) && seq_push(s, st->gen[i].token.id, &why))
            seq_fail(s, why.msg);
        s->step = 1;
        s->ahead = 0;
    }
}

/* The answer's text: special tokens left out, and what stands behind a stop sequence cut off. */
static void whole_text(struct stepper *st, struct gen *g, size_t cut)
{
    struct seq *s = g->seq;
    struct detok d;
    uint32_t context = s->n_prompt < DETOK_CONTEXT ? s->n_prompt : DETOK_CONTEXT;
    g->whole = st->text.len;
    if (detok_init(&d, st->tok, s->ids + s->n_prompt - context, context, true)) {
        seq_fail(s, "out of memory");
        return;
    }
    for (uint32_t i = s->n_prompt; i < s->n; i++)
        detok_push(&d, s->ids[i], &st->text);
    if (g->reason != STOP_SEQUENCE && g->reason != STOP_TOKEN)
        detok_finish(&d, &st->text);
    detok_free(&d);
    g->whole_len = st->text.len - g->whole;
    if (!g->special)
        g->whole_len -= cut < g->whole_len ? cut : g->whole_len;
}

static void finish_one(struct stepper *st, struct gen *g)
{
    struct seq *s = g->seq;
    size_t len;
    buf_reset(&st->piece);
    detok_push(&s->detok, g->token.id, &st->piece);
    g->special = tokenizer_is_special(st->tok, g->token.id);
    len = st->piece.len;
    g->reason = stop_push(&s->stop, g->token.id, st->piece.p ? st->piece.p : "", &len);
    size_t cut = st->piece.len - len;
    if (g->reason == STOP_LENGTH || g->reason == STOP_EOS) {
        detok_finish(&s->detok, &st->piece);
        len = st->piece.len;
    }
    g->text = st->text.len;
    g->text_len = len;
    buf_add(&st->text, st->piece.p, len);
    if (g->reason != STOP_NOT) {
        s->done = true;
        whole_text(st, g, cut);
    }
    if (st->text.oom || st->piece.oom)
        seq_fail(s, "out of memory");
}

int stepper_run(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    int64_t t0 = clock_ns();
    st->n_gen = 0;
    st->text.oom = st->piece.oom = false;
    buf_reset(&st->text);
    if (reserve_lists(st, v, n, e) || forward(st, v, n, e))
        return -1;
    sample_all(st, v, n);
    int64_t t1 = clock_ns();
    for (uint32_t i = 0; i < st->n_gen; i++)
        if (!st->gen[i].seq->error[0])
            finish_one(st, &st->gen[i]);
    st->forward_ns = t1 - t0 + st->early_ns;
    st->decode_ns = clock_ns() - t1;
    return 0;
}

void step_plan_chunks(struct seq **v, uint32_t n, uint32_t budget)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < n; i++)
        live += seq_live(v[i]);
    uint32_t left = budget > live ? budget - (live - !!live) : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        if (!seq_live(s) || s->cached >= s->n)
            continue;
        uint32_t rest = s->n - s->cached;
        if (rest == 1) {
            s->step = 1;
            continue;
        }
        s->step = rest < left ? rest : left ? left : 1;
        left -= s->step < left ? s->step : left;
    }
}
