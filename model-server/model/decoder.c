#include "common/thread/watchdog.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/first_conv.h"
#include "model-server/model/ngrams.h"
#include "model-server/model/pass.h"
#include "model-server/model/residual.h"
#include "model-server/model/short_conv.h"
#include "model-server/model/trigram.h"
#include <assert.h>
#include <string.h>

/* ---------------------------------------------------------------- a layer */

static bool in_windows(const struct decoder *d, uint32_t i)
{
    return d->windows && d->kv_window[d->kv_at[i]];
}

static struct sub_step step_of(const struct decoder *d, const float *in, uint32_t i,
                               const struct decoder_part *p, void *work)
{
    const struct scratch *s = &d->scratch;
    return (struct sub_step){.layer = i,
                             .tokens = p->n,
                             .first = p->first,
                             .total = p->total,
                             .cache = in_windows(d, i) ? d->windows : d->kv,
                             .kv = d->kv_in[d->kv_at[i]],
                             .stream = decoder_rows(d, s->x, p),
                             .embedded = decoder_rows(d, s->embedded, p),
                             .in = in + (size_t)p->first * d->spec.hidden,
                             .out = decoder_rows(d, s->r, p),
                             .work = {work}};
}

/* Stores what other rows of the step need of these rows of sublayer y of layer i; `in`: their
 * input, [total][hidden]. */
static int decoder_store(struct decoder *d, const struct sublayer *y, const float *in, uint32_t i,
                         const struct decoder_part *p, struct err *e)
{
    struct sub_step step = step_of(d, in, i, p, d->scratch.mixer);
    return y->ops->store ? y->ops->store(d, y->self, &step, e) : 0;
}

/* r = a sublayer of `in`, summed over ranks, convolved if it has a convolution, and normalised
 * unless `post` is NULL. */
static int decoder_sublayer(struct decoder *d, const struct sublayer *y, const float *in,
                            const struct norm *post, uint32_t i, const struct decoder_part *p,
                            void *work, struct err *e)
{
    struct sub_step step = step_of(d, in, i, p, work);
    if (y->ops->forward(d, y->self, &step, e) ||
        (!y->ops->whole && layer_sum(d, step.out, (size_t)p->n * d->spec.hidden, e)))
        return -1;
    if (y->conv) { /* the sublayer's memory is free */
        short_conv_run(d, y->conv, work, step.out, d->spec.hidden);
        d->ops->beside(d->dev, step.out, work, NULL, p->n, d->spec.hidden);
    }
    if (post)
        d->ops->norm(d->dev, step.out, step.out, p->n, d->spec.hidden, post);
    return 0;
}

int decoder_next_step(struct decoder *d, const struct ragged *b, struct err *e)
{
    return d->ops->step_end(d->dev, e) || d->ops->step_begin(d->dev, b, e) ? -1 : 0;
}

/* The input of a sublayer times its gate; `work`: of the sublayer, which does not run yet. */
static void gate_input(struct decoder *d, const struct norm_gate *g, const float *in,
                       const struct decoder_part *p, void *work)
{
    const uint32_t hidden = d->spec.hidden, rank = d->spec.norm_gate;
    struct work w = {work};
    if (!g->down)
        return;
    float *x = (float *)(uintptr_t)in + (size_t)p->first * hidden;
    float *low = work_take(&w, p->n, rank), *by = work_take(&w, p->n, hidden);
    d->ops->linear(d->dev, low, x, p->n, g->down, NULL);
    d->ops->act(d->dev, low, p->n, rank, ACT_SILU);
    d->ops->linear(d->dev, by, low, p->n, g->up, NULL);
    d->ops->gate_norm(d->dev, x, hidden, p->n, hidden,
                      &(struct gate_norm){.kind = GATE_SIGMOID, .gate = by, .stride = hidden});
}

static const struct sublayer *sub_at(const struct layer *y, enum sub sub)
{
    return sub == SUB_MIXER ? &y->mixer : sub == SUB_FFN ? &y->ffn : &y->tail;
}

static const float *input_of(const struct decoder *d, uint32_t i, enum sub sub)
{
    const struct residual_ops *x = residual_of(&d->spec);
    return x->in ? x->in(d, i, sub) : d->scratch.n;
}

int decoder_layer_store(struct decoder *d, uint32_t i, const struct decoder_part *p, struct err *e)
{
    const struct residual_ops *x = residual_of(&d->spec);
    const struct layer *y = &d->layers[i];
    if (!y->mixer.ops)
        return 0;
    if (d->spec.layers[i].moe && d->spec.moe.early_router)
        d->ops->beside(d->dev, decoder_rows(d, d->scratch.carried, p),
                       decoder_rows(d, d->scratch.x, p), NULL, p->n, d->spec.hidden);
    if (y->ngrams && decoder_ngrams_add(d, y->ngrams, p, e))
        return -1;
    if (x->read)
        x->read(d, i, SUB_MIXER, p);
    gate_input(d, &y->mixer_gate, input_of(d, i, SUB_MIXER), p, d->scratch.mixer);
    return decoder_store(d, &y->mixer, input_of(d, i, SUB_MIXER), i, p, e);
}

int decoder_layer_sub(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p,
                      struct err *e)
{
    const struct residual_ops *x = residual_of(&d->spec);
    const struct sublayer *y = sub_at(&d->layers[i], sub);
    void *work = sub == SUB_MIXER ? d->scratch.mixer : d->scratch.ffn;
    if (!y->ops)
        return 0;
    if (x->read && sub != SUB_MIXER)
        x->read(d, i, sub, p);
    if (sub == SUB_FFN)
        gate_input(d, &d->layers[i].ffn_gate, input_of(d, i, sub), p, work);
    const struct norm *post = x->post ? x->post(d, i, sub) : NULL;
    if (decoder_sublayer(d, y, input_of(d, i, sub), post, i, p, work, e))
        return -1;
    x->write(d, i, sub, p);
    return 0;
}

int decoder_layer_rest(struct decoder *d, uint32_t i, const struct decoder_part *p, struct err *e)
{
    for (enum sub sub = SUB_MIXER; sub < SUBS; sub++)
        if (decoder_layer_sub(d, i, sub, p, e))
            return -1;
    return 0;
}

int decoder_layer(struct decoder *d, uint32_t i, uint32_t t, struct err *e)
{
    const struct decoder_part all = {0, t, t};
    return decoder_layer_store(d, i, &all, e) || decoder_layer_rest(d, i, &all, e) ? -1 : 0;
}

/* ---------------------------------------------------------------- a step */

int decoder_check(const struct decoder *d, const struct ragged *b, struct err *e)
{
    const struct decoder_spec *m = &d->spec;
    const uint32_t end = m->learned_positions ? spec_position_end(m) : 0;
    assert(d->kv && b->n_out <= b->n_tokens);
    for (uint32_t i = 0; d->state_floats && i < b->n_spans; i++)
        assert(b->spans[i].state_in < d->n_cells && b->spans[i].state_out < d->n_cells);
    for (uint32_t i = 0; i < b->n_tokens; i++) {
        bool known = (!b->drawn || b->drawn[i] == DRAW_KNOWN) && !(b->given && b->given[i]);
        if (known && b->ids[i] >= m->vocab)
            return err_set(e, ERR_VALIDATION, "token id %u is not below the vocabulary size %u",
                           b->ids[i], m->vocab);
        if (m->learned_positions && b->pos[i] >= end)
            return err_set(e, ERR_VALIDATION, "position %u: this model has %u learned positions",
                           b->pos[i], end);
    }
    return 0;
}

void decoder_enter_layer(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const struct residual_ops *x = residual_of(&d->spec);
    if (x->enter)
        x->enter(d, i, p);
}

/* True if this pass stores rows for a draft head. */
static bool captures(const struct decoder *d)
{
    return d->draft.ops && (d->capture || d->rehearsed);
}

static void tap(struct decoder *d, uint32_t layer, uint32_t t)
{
    if (captures(d) && d->draft.ops->tap)
        d->draft.ops->tap(d, d->draft.self, layer, t);
}

/* layer_spec.keeps and .joins of layer i. */
static void skip(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const struct layer_spec *ls = &d->spec.layers[i];
    const uint32_t hidden = d->spec.hidden;
    struct scratch *s = &d->scratch;
    for (int k = 0; k < KEPT_PLACES; k++)
        if (ls->keeps >> k & 1)
            d->ops->beside(d->dev, s->kept[k], s->x, NULL, p->n, hidden);
    for (int k = 0; k < KEPT_PLACES; k++) {
        if (!(ls->joins >> k & 1))
            continue;
        d->ops->logit_scale(d->dev, s->x, p->n, hidden, 1 - d->spec.skip_share, 0);
        d->ops->add_norm(d->dev, NULL, s->x, s->kept[k], d->spec.skip_share, p->n, hidden, NULL);
    }
    if (ls->joins)
        decoder_enter_layer(d, i, p);
}

int decoder_run_layers(struct decoder *d, const struct ragged *b, bool few, struct err *e)
{
    const struct decoder_part all = {0, b->n_tokens, b->n_tokens};
    const struct stage *g = &d->stage;
    const struct residual_ops *x = residual_of(&d->spec);
    d->step = b;
    if (g->begins ? x->begin(d, &all, e) : stage_take_rows(d, b->n_tokens, e))
        return -1;
    decoder_enter_layer(d, g->first, &all);
    if (d->trigram && trigram_run(d, d->trigram, b, e))
        return -1;
    if (d->first_conv && first_conv_run(d, d->first_conv, b, e))
        return -1;
    for (uint32_t i = g->first; i < g->first + g->n; i++) {
        if (d->busy_ns)
            watch_busy(d->busy_ns);
        if (d->spec.skip_share != 0)
            skip(d, i, &all);
        tap(d, i, b->n_tokens);
        const bool cross = decoder_is_cross(d, i);
        if (cross && !d->cross.n)
            continue;
        if (few && i + 1 == g->first + g->n)
            return decoder_layer_few(d, i, b, e);
        if (cross ? decoder_cross_layer(d, i, b, e) : decoder_layer(d, i, b->n_tokens, e))
            return -1;
        if (i == 0 && d->first_conv)
            first_conv_add(d, d->first_conv, b->n_tokens);
        if ((cross && d->cross.n < b->n_tokens) ||
            (d->front.after && d->front.after(d->front.arg, i, d->scratch.x, 0, b->n_tokens)))
            decoder_enter_layer(d, i + 1, &all);
    }
    if (g->ends && x->end)
        x->end(d, b->n_tokens);
    tap(d, d->spec.n_layers, b->n_tokens);
    return g->ends ? 0 : stage_give_rows(d, b->n_tokens, e);
}

/* The logits of a step are collected once, after its last pass: until then the first stages go on
 * with other passes. */
struct outputs {
    uint32_t before; /* rows of output of earlier passes */
    uint32_t all;    /* in the last pass: rows of output of the step; else 0 */
};

/* Between its sublayers a last layer on few rows waits for the device: one that draws tokens gets
 * whole steps at once instead. */
bool decoder_runs_few(const struct decoder *d, const struct ragged *b)
{
    return !d->ops->draw && !captures(d) && decoder_ends_few(d, b);
}

static int run(struct decoder *d, const struct ragged *b, struct outputs o, struct err *e)
{
    const bool few = decoder_runs_few(d, b);
    if (decoder_run_layers(d, b, few, e))
        return -1;
    if (captures(d) && !d->draft.ops->tap) /* n is not needed any more */
        d->ops->norm(d->dev, d->scratch.n, d->scratch.x, b->n_tokens, d->spec.hidden,
                     &d->final_norm);
    if (b->n_out && d->stage.ends)
        decoder_head_rows(d, o.before, b->n_out, few);
    return o.all ? decoder_collect_logits(d, o.all, e) : 0;
}

/* Copies the step's rows for a draft head. */
static int fetch_hidden(struct decoder *d, const struct ragged *b, struct err *e)
{
    float *rows = d->capture;
    if (!rows)
        return 0;
    assert(d->draft.ops);
    d->capture += (size_t)b->n_tokens * d->draft.plan.width; /* of the next pass */
    return d->ops->download(d->dev, rows, d->draft.ops->tap ? d->scratch.hidden : d->scratch.n,
                            (size_t)b->n_tokens * d->draft.plan.width * sizeof(float), e);
}

/* gathered is [world][n_out][that rank's slice]: places the slices side by side. */
int decoder_fetch_logits(struct decoder *d, uint32_t n_out, float *logits, struct err *e)
{
    const int world = d->split.world;
    const size_t vocab = d->spec.vocab, most = (size_t)n_out * d->split.vocab_most;
    struct scratch *s = &d->scratch;
    if (logits == s->logits)
        return 0;
    if (world == 1)
        return d->ops->download(d->dev, logits, s->logits, n_out * vocab * sizeof(float), e);
    if (d->ops->download(d->dev, s->host, s->gathered, (size_t)world * most * sizeof(float), e))
        return -1;
    for (int r = 0; r < world; r++) {
        struct slice v = slice_of(d->spec.vocab, (uint32_t)r, (uint32_t)world);
        for (uint32_t i = 0; i < n_out; i++)
            memcpy(logits + i * vocab + v.first, s->host + (size_t)r * most + (size_t)i * v.n,
                   v.n * sizeof(float));
    }
    return 0;
}

static int draw(struct decoder *d, uint32_t n_out, const struct draw *v, int set, struct err *e)
{
    const uint32_t world = (uint32_t)d->split.world;
    struct logits x = {world == 1 ? d->scratch.logits : d->scratch.gathered, d->spec.vocab, world,
                       (size_t)n_out * d->split.vocab_most};
    return d->ops->draw(d->dev, &x, v, n_out, set, e);
}

struct ragged decoder_with_ids(struct decoder *d, const struct ragged *b)
{
    struct ragged own = *b;
    if (!d->spec.per_layer || !d->scratch.n_given)
        return own;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        d->scratch.ids[i] = b->given[i] ? d->spec.given_id : b->ids[i];
    own.ids = d->scratch.ids;
    return own;
}

/* Enqueues all operations of a step; with `v`, without waiting for them. */
static int enqueue(struct decoder *d, const struct ragged *step, struct outputs o,
                   const struct draw *v, int set, struct err *e)
{
    struct err late = ERR_INIT;
    if (decoder_upload_positions(d, step, e) || decoder_upload_given(d, step, e) ||
        decoder_cross_begin(d, step, e))
        return -1;
    const struct ragged own = decoder_with_ids(d, step), *b = &own;
    if (d->ops->step_begin(d->dev, b, e))
        return -1;
    int rc = run(d, b, o, e);
    if (rc == 0 && v)
        rc = draw(d, b->n_out, v, set, e);
    d->cross.n = 0; /* other ways through the layers show no pictures */
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    return fetch_hidden(d, b, e);
}

static int pass(struct decoder *d, const struct ragged *b, struct outputs o, float *logits,
                struct err *e)
{
    int rc = enqueue(d, b, o, NULL, 0, e);
    return rc || !o.all ? rc : decoder_fetch_logits(d, o.all, logits, e);
}

int decoder_draw(struct decoder *d, const struct ragged *b, const struct draw *v, int set,
                 struct err *e)
{
    assert(b->n_out && decoder_pass_of(d, b->n_tokens) == b->n_tokens);
    if (decoder_check(d, b, e) || decoder_reserve(d, b->n_tokens, b->n_out, e))
        return -1;
    return enqueue(d, b, (struct outputs){0, b->n_out}, v, set, e);
}

int decoder_rehearse(struct decoder *d, const struct ragged *b, struct err *e)
{
    struct err late = ERR_INIT;
    if (!d->ops->step_rehearse)
        return 0;
    if (decoder_check(d, b, e) || decoder_reserve(d, b->n_tokens, b->n_out, e) ||
        d->ops->step_rehearse(d->dev, b, e))
        return -1;
    d->rehearsed = 1;
    int rc = run(d, b, (struct outputs){0, b->n_out}, e);
    if (rc == 0 && d->ops->draw && b->n_out && d->spec.vocab <= DRAW_MOST_VOCAB)
        rc = draw(d, b->n_out, NULL, 0, e);
    d->rehearsed = 0;
    return d->ops->step_end(d->dev, rc ? &late : e) ? -1 : rc;
}

/* Where the next pass ends, which begins at token `from`: the i-th of `passes`. It is empty if an
 * image before it ended after this share. */
static uint32_t next_end(const struct ragged *b, uint32_t i, uint32_t passes, uint32_t from)
{
    const struct slice share = slice_of(b->n_tokens, i, passes);
    const uint32_t to = pass_end(b, share.first + share.n);
    return to > from ? to : from;
}

/* Memory of all passes: the logits of a step stay in it. */
static int reserve_passes(struct decoder *d, const struct ragged *b, uint32_t passes, struct err *e)
{
    uint32_t most = 0;
    for (uint32_t i = 0, from = 0, to; i < passes; i++, from = to) {
        to = next_end(b, i, passes, from);
        most = to - from > most ? to - from : most;
    }
    return decoder_reserve_pass(d, most, b->n_out, e);
}

/* A step in several passes. */
static int run_passes(struct decoder *d, const struct ragged *b, uint32_t passes, float *logits,
                      struct err *e)
{
    const uint32_t n = b->n_tokens;
    struct outputs o = {0, 0};
    for (uint32_t i = 0, from = 0, to; i < passes && from < n; i++, from = to) {
        to = next_end(b, i, passes, from);
        if (to == from)
            continue;
        struct ragged part = pass_cut(b, from, to, d->scratch.spans, d->scratch.out_rows);
        o.all = to == n ? b->n_out : 0;
        if (pass(d, &part, o, logits, e))
            return -1;
        o.before += part.n_out;
    }
    return 0;
}

/* Where the device's memory is the host's, the head writes to `logits`: a copy of a batch's rows
 * takes time, and as much memory again. */
int decoder_forward(struct decoder *d, const struct ragged *b, float *logits, struct err *e)
{
    const uint32_t n = b->n_tokens, most = stage_pass_tokens(d, n, decoder_pass_of(d, n));
    if (n == 0)
        return 0;
    if (decoder_check(d, b, e) || decoder_reserve(d, n, b->n_out, e))
        return -1;
    const uint32_t passes = (n + most - 1) / most;
    if (passes > 1 && reserve_passes(d, b, passes, e))
        return -1;
    float *const own = d->scratch.logits;
    if (!d->ops->comm_open && d->split.world == 1)
        d->scratch.logits = logits;
    const int rc = passes == 1 ? pass(d, b, (struct outputs){0, b->n_out}, logits, e)
                               : run_passes(d, b, passes, logits, e);
    d->scratch.logits = own;
    return rc;
}
