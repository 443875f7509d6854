#include "model-server/engine/heads.h"
#include "model-server/engine/kv_pool.h"
#include "model-server/engine/seq.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void head_rows_free(struct head_rows *r)
{
    free(r->v);
    *r = (struct head_rows){0};
}

int heads_init(struct heads *h, struct model *m, uint32_t block_size, struct err *e)
{
    const struct model_info *i = model_info(m);
    *h = (struct heads){.model = m,
                        .of = i->draft,
                        .vocab = i->vocab,
                        .block_size = block_size,
                        .gate = gate_new()};
    if (!heads_any(h))
        return 0;
    h->mask = malloc((i->vocab + (size_t)31) / 32 * sizeof(*h->mask));
    return h->mask ? filter_mem_init(&h->filter, i->vocab, e) : err_nomem(e);
}

int heads_want_second(struct heads *h, struct err *e)
{
    if (!h->second)
        h->second = malloc(h->vocab * sizeof(*h->second));
    return h->second ? 0 : err_nomem(e);
}

void heads_free(struct heads *h)
{
    filter_mem_free(&h->filter);
    free(h->ids), free(h->pos), free(h->slots), free(h->out_rows), free(h->mask), free(h->spans);
    free(h->rows), free(h->who), free(h->states), free(h->logits), free(h->next);
    free(h->second);
    *h = (struct heads){0};
}

/* ---------------------------------------------------------------- is it worth using? */

void heads_start(struct heads *h, bool measured)
{
    h->gate = gate_new();
    h->measured = measured && heads_any(h);
    h->passes_before = h->passes;
}

void heads_enter(struct heads *h, uint32_t seqs)
{
    if (h->measured)
        gate_enter(&h->gate, seqs);
}

enum { AGREE_UNIT = 32 }; /* ns; ranks agree on integers below 2^24 */

int heads_learn(struct heads *h, struct comm *c, uint32_t tokens, int64_t ns, struct err *e)
{
    const bool drafted = h->passes != h->passes_before;
    h->passes_before = h->passes;
    if (!h->measured || !gate_note(&h->gate, tokens, ns, drafted))
        return 0;
    uint32_t units = 1 + gate_period_ns(&h->gate) / AGREE_UNIT;
    if (c->world > 1 && kv_agree(c, &units, e))
        return -1;
    gate_decide(&h->gate, units * AGREE_UNIT);
    return 0;
}

/* Replaces *p by an array of n elements; contents are lost. */
static int renew(void *p, size_t n, size_t size)
{
    free(*(void **)p);
    return (*(void **)p = malloc(n * size)) ? 0 : -1;
}

static int reserve(struct heads *h, uint32_t tokens, uint32_t seqs, struct err *e)
{
    if (tokens > h->cap_tokens) {
        h->cap_tokens = 0;
        if (renew(&h->ids, tokens, 4) || renew(&h->pos, tokens, 4) || renew(&h->slots, tokens, 4) ||
            renew(&h->rows, tokens, sizeof(*h->rows)))
            return err_nomem(e);
        h->cap_tokens = tokens;
    }
    if (seqs <= h->cap_seqs)
        return 0;
    const size_t hidden = model_info(h->model)->hidden;
    h->cap_seqs = 0;
    if (renew(&h->spans, seqs, sizeof(*h->spans)) || renew(&h->who, seqs, sizeof(struct seq *)) ||
        renew(&h->out_rows, seqs, 4) || renew(&h->states, seqs, 4) ||
        renew(&h->logits, seqs, h->vocab * sizeof(float)) ||
        renew(&h->next, seqs, hidden * sizeof(float)))
        return err_nomem(e);
    h->cap_seqs = seqs;
    return 0;
}

/* ---------------------------------------------------------------- rows */

static struct draft_step begin(struct heads *h, uint32_t depth)
{
    return (struct draft_step){.b = {.ids = h->ids,
                                     .pos = h->pos,
                                     .slots = h->slots,
                                     .spans = h->spans,
                                     .out_rows = h->out_rows},
                               .depth = depth,
                               .rows = h->rows,
                               .logits = h->logits,
                               .next = h->next};
}

/* Appends rows of tokens [from, from + n) of `s`, each with the following token. */
static void put(struct heads *h, struct draft_step *x, const struct seq *s, uint32_t from,
                uint32_t n, const float *rows, size_t width)
{
    struct ragged *b = &x->b;
    assert(b->n_tokens + n <= h->cap_tokens && b->n_spans < h->cap_seqs);
    h->spans[b->n_spans++] = (struct span){.first = b->n_tokens,
                                           .n = n,
                                           .kv_len = from + n - s->head.since,
                                           .blocks = s->blocks + s->head.since / h->block_size,
                                           .state_in = s->cell[0],
                                           .state_out = s->cell[1],
                                           .seq_len = from + n};
    for (uint32_t i = 0; i < n; i++, b->n_tokens++) {
        const uint32_t p = from + i, at = b->n_tokens;
        assert(p / h->block_size < s->n_blocks);
        h->ids[at] = s->ids[p + 1] < h->vocab ? s->ids[p + 1] : 0; /* a placeholder may not be */
        h->pos[at] = p;
        h->slots[at] = s->blocks[p / h->block_size] * h->block_size + p % h->block_size;
        h->rows[at] = rows + i * width;
    }
}

static int keep(struct head_rows *r, const float *rows, uint32_t n, size_t width, struct err *e)
{
    if (r->n + n > r->cap) {
        float *more = realloc(r->v, (r->n + n) * width * sizeof(float));
        if (!more)
            return err_nomem(e);
        r->v = more;
        r->cap = r->n + n;
    }
    memcpy(r->v + r->n * width, rows, n * width * sizeof(float));
    r->n += n;
    return 0;
}

/* Rows restart at token `at`. If they follow a cached prefix, another request has computed the
 * prefix's keys. Otherwise keys are missing: the preceding tokens of the block get the row of
 * `at`, and earlier blocks are masked. */
static int restart(struct heads *h, struct seq *s, uint32_t at, const float *row, struct err *e)
{
    struct head_rows *r = &s->head;
    const bool gap = h->of.keeps && (r->begun || at >= s->n_prompt);
    r->begun = true;
    r->n = 0;
    r->from = gap ? at - at % h->block_size : at;
    r->since = gap ? r->from : 0;
    for (uint32_t i = r->from; i < at; i++)
        if (keep(r, row, 1, h->of.width, e))
            return -1;
    return 0;
}

/* Runs pending rows and n more rows through the head, only for their keys. */
static int pass_through(struct heads *h, struct seq *s, const float *rows, uint32_t n,
                        struct err *e)
{
    struct head_rows *r = &s->head;
    const size_t width = h->of.width;
    if (reserve(h, r->n + n, 2, e))
        return -1;
    struct draft_step x = begin(h, 0);
    if (r->n)
        put(h, &x, s, r->from, r->n, r->v, width);
    if (n)
        put(h, &x, s, r->from + r->n, n, rows, width);
    if (x.b.n_spans == 2) { /* one sequence, one span */
        h->spans[0].n += h->spans[1].n;
        h->spans[0].kv_len = h->spans[0].seq_len = h->spans[1].kv_len;
        x.b.n_spans = 1;
    }
    if (model_draft(h->model, &x, e))
        return -1;
    r->from += r->n + n;
    r->n = 0;
    return 0;
}

int heads_take(struct heads *h, struct seq *s, uint32_t end, struct err *e)
{
    struct head_rows *r = &s->head;
    const size_t width = h->of.width;
    const uint32_t at = r->fresh_at;
    const float *rows = r->fresh;
    if (!rows || end <= at)
        return 0;
    r->fresh = NULL;
    if ((!r->begun || at > r->from + r->n) && restart(h, s, at, rows, e))
        return -1;
    if (end <= r->from + r->n) /* a step that is repeated */
        return 0;
    const uint32_t known = r->from + r->n - at;
    uint32_t n = end - at - known;
    rows += known * width;
    if (!h->of.keeps) {
        r->from = end - 1;
        r->n = 0;
        return keep(r, rows + (n - 1) * width, 1, width, e);
    }
    if (r->n + n > HEAD_LAG) {
        if (pass_through(h, s, rows, n - 1, e))
            return -1;
        rows += (n - 1) * width;
        n = 1;
    }
    return keep(r, rows, n, width, e);
}

/* ---------------------------------------------------------------- drafts */

bool heads_ready(const struct heads *h, const struct seq *s)
{
    const struct head_rows *r = &s->head;
    if (!heads_any(h) || s->media)
        return false;
    return (r->n_made && r->at == s->n) || (r->n && r->from + r->n == s->n - 1);
}

static int mask_of(struct heads *h, const struct seq *s, constraint_state at)
{
    struct err none = ERR_INIT;
    return constraint_mask(s->constraint, at, grammars_tokens(s->grammars), h->mask, &none);
}

/* The first draft was `best`: samples the token if `best` were masked. h->second holds a copy of
 * the row. */
static void choose_second(struct heads *h, struct seq *s, uint32_t best)
{
    struct err none = ERR_INIT;
    struct sampled out = {0};
    h->second[best] = -INFINITY;
    s->head.has_second =
        sample_row(&s->sampling, &s->tally, s->ids[s->n - 1], s->constraint ? h->mask : NULL, s->n,
                   h->second, h->vocab, &h->filter, &out, &none) == 0 &&
        out.id != best;
    s->head.second = out.id;
}

/* Samples the j-th draft of `s`, as the model's own token would be sampled. */
static bool choose(struct heads *h, struct seq *s, uint32_t j, float *row, constraint_state *at)
{
    struct err none = ERR_INIT;
    struct sampled out = {0};
    const uint32_t n = s->n + j;
    if (s->constraint && mask_of(h, s, *at))
        return false;
    if (!s->constraint)
        stop_forbid(&s->stop, s->stop.generated + j, row, h->vocab);
    bad_words_forbid(&s->bad_words, s->ids + s->n_prompt, n - s->n_prompt, row);
    const bool second = j == 0 && h->second;
    if (second)
        memcpy(h->second, row, h->vocab * sizeof(*row));
    if (sample_row(&s->sampling, &s->tally, s->ids[n - 1], s->constraint ? h->mask : NULL, n, row,
                   h->vocab, &h->filter, &out, &none))
        return false;
    if (second)
        choose_second(h, s, out.id);
    s->ids[n] = s->head.made[j] = out.id;
    s->head.n_made = j + 1;
    if (s->constraint)
        *at = grammars_next(s->grammars, s->constraint, *at, out.id);
    return true;
}

/* Reuses drafts that were already made for this position. */
static bool again(struct seq *s)
{
    struct head_rows *r = &s->head;
    if (!r->n_made || r->at != s->n)
        return false;
    s->proposed = r->n_made < r->most ? r->n_made : r->most;
    memcpy(s->ids + s->n, r->made, s->proposed * sizeof(*r->made));
    return true;
}

/* Selects the sequences of h->who whose draft j + 1 pays for its row, if a pass for them pays. */
static uint32_t select_worth(struct heads *h, uint32_t n, uint32_t j, struct step_worth *w)
{
    double gain = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = h->who[i];
        const double p = draft_gain(&s->acceptance, DRAFT_HEAD, j + 1);
        if (s->head.most <= j || s->head.n_made < j || !worth_row(w, p))
            continue;
        if (j && h->of.chains && kept != i) /* its row of the last pass */
            memmove(h->next + (size_t)kept * model_info(h->model)->hidden,
                    h->next + (size_t)i * model_info(h->model)->hidden,
                    model_info(h->model)->hidden * sizeof(float));
        h->states[kept] = h->states[i];
        h->who[kept++] = s;
        gain += p;
    }
    return kept && worth_pass(w, h->pass_cost, kept, gain) ? kept : 0;
}

/* Pass j over the first n of h->who; samples a token from each row. */
static int pass(struct heads *h, uint32_t n, uint32_t j, struct err *e)
{
    const size_t hidden = model_info(h->model)->hidden;
    struct draft_step x = begin(h, j);
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = h->who[i];
        struct head_rows *r = &s->head;
        if (!h->of.chains)
            put(h, &x, s, r->from + r->n - 1, 1, r->v + (r->n - 1) * (size_t)h->of.width, 0);
        else if (j)
            put(h, &x, s, s->n - 2 + j, 1, h->next + i * hidden, 0);
        else
            put(h, &x, s, r->from, r->n, r->v, h->of.width);
        h->out_rows[x.b.n_out++] = x.b.n_tokens - 1;
    }
    h->passes++;
    if (model_draft(h->model, &x, e))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = h->who[i];
        if (j == 0 && h->of.keeps) {
            s->head.from += s->head.n;
            s->head.n = 0;
        }
        choose(h, s, j, h->logits + i * (size_t)h->vocab, &h->states[i]);
    }
    return 0;
}

int heads_propose(struct heads *h, struct seq **v, uint32_t n, struct step_worth *w, struct err *e)
{
    uint32_t some = 0, tokens = 0, most = h->of.most ? h->of.most : HEAD_MOST;
    most = most < HEAD_MOST ? most : HEAD_MOST;
    for (uint32_t i = 0; i < n; i++)
        if (v[i]->head.most && !again(v[i]))
            some++, tokens += v[i]->head.n;
    if (!some)
        return 0;
    if (reserve(h, tokens > some ? tokens : some, some, e))
        return -1;
    some = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        if (!s->head.most || s->proposed)
            continue;
        s->head.at = s->n;
        s->head.n_made = 0;
        s->head.has_second = false;
        h->states[some] = s->constraint ? s->grammar_state : 0;
        h->who[some++] = s;
    }
    for (uint32_t j = 0; j < most && (some = select_worth(h, some, j, w)); j++) {
        if (pass(h, some, j, e))
            return -1;
        w->extra += h->pass_cost;
    }
    for (uint32_t i = 0; i < n; i++)
        if (v[i]->head.most && v[i]->head.at == v[i]->n && !v[i]->proposed)
            v[i]->proposed = v[i]->head.n_made;
    return 0;
}
