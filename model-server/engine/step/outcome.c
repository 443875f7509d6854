#include "model-server/engine/step/outcome.h"
#include "model-server/engine/step/drafts.h"
#include <assert.h>
#include <string.h>

enum { DETOK_CONTEXT = 5 };

/* The next sequence's rows in a forward pass that was not run ahead. */
struct row_cursor {
    struct draw_place at;
    uint32_t top;
};

/* Adds the gen of a sibling, after those of the drafts. */
static void list_sibling(struct stepper *st, struct seq *s, struct row_cursor *c,
                         const struct draw_place *at)
{
    float *logits = stepper_rows(st, seq_is_ahead(st, s));
    assert(!st->draws && st->n_gen < st->cap_gen && c->top + s->top_n <= st->cap_top);
    st->gen[st->n_gen++] = (struct gen){.seq = s,
                                        .nth = 1,
                                        .at = *at,
                                        .row = logits + (size_t)at->row * st->vocab,
                                        .token = {.n_top = s->top_n,
                                                  .top_id = st->top_id + c->top,
                                                  .top_logprob = st->top_logprob + c->top}};
    c->top += s->top_n;
}

/* Adds the gens of `s`, one for each of its rows. */
static void list_rows(struct stepper *st, struct seq *s, struct row_cursor *c)
{
    const bool ahead = seq_is_ahead(st, s);
    float *logits = stepper_rows(st, ahead);
    struct draw_place first = ahead ? s->ahead_at : c->at;
    if (st->draws && !ahead)
        first.fetch = st->rows.v[first.row].fetch;
    for (uint32_t j = 0; j <= s->drafted; j++, c->top += s->top_n) {
        assert(st->n_gen < st->cap_gen && c->top + s->top_n <= st->cap_top);
        struct gen *g = &st->gen[st->n_gen++];
        *g = (struct gen){.seq = s,
                          .first = j == 0 && s->n == s->n_prompt,
                          .nth = j,
                          .drafts = s->drafted - j,
                          .at = draws_place(&first, s, j),
                          .set = ahead ? st->ahead_set : !st->ahead_set,
                          .token = {.n_top = s->top_n,
                                    .top_id = st->top_id + c->top,
                                    .top_logprob = st->top_logprob + c->top}};
        g->row = st->draws ? NULL : logits + (size_t)g->at.row * st->vocab;
    }
    struct draw_place behind = draws_place(&first, s, s->drafted + 1);
    if (s->sibling.on) {
        list_sibling(st, s, c, &behind);
        behind.row++;
    }
    if (ahead)
        st->early_ns = st->ahead_ns;
    else
        c->at = behind;
}

void outcome_list(struct stepper *st, struct seq **v, uint32_t n)
{
    struct row_cursor c = {0};
    st->n_gen = 0;
    st->early_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i]->error[0] && !v[i]->done)
            st->gen[st->n_gen++] = (struct gen){.seq = v[i]};
        else if (seq_live(v[i]) && !seq_prefilling(v[i]))
            list_rows(st, v[i], &c);
    }
}

/* Fills the thread's mask for `s`; NULL without an error if every token is allowed. */
static const uint32_t *mask_for(struct stepper *st, const struct seq *s, int thread, struct err *e)
{
    uint32_t *mask = st->mask + (size_t)thread * st->mask_words;
    if (!s->constraint ||
        constraint_mask(s->constraint, s->grammar_state, grammars_tokens(s->grammars), mask, e))
        return NULL;
    return mask;
}

/* Samples the token of one row, as if each preceding token had been a separate step. */
static int choose(struct stepper *st, struct gen *g, int thread, struct err *e)
{
    struct seq *s = g->seq;
    if (g->why)
        return err_set(e, ERR_GENERATION, "%s", g->why);
    if (!g->row)
        return 0;
    const uint32_t *mask = mask_for(st, s, thread, e);
    if (e->kind) {
        s->unservable = e->kind == ERR_VALIDATION;
        return -1;
    }
    if (!s->constraint) /* with a constraint only the constraint decides when the answer ends */
        stop_forbid(&s->stop, s->stop.generated + g->nth, g->row, st->vocab);
    bad_words_forbid(&s->bad_words, s->ids + s->n_prompt, s->n - s->n_prompt, g->row);
    return sample_row(&s->sampling, &s->tally, s->ids[s->n - 1], mask, s->n, g->row, st->vocab,
                      &st->filter[thread], &g->token, e);
}

/* The model has sampled the sibling: its hidden row replaces that of the first draft. */
static void take_sibling(struct stepper *st, struct seq *s)
{
    struct head_rows *r = &s->head;
    s->sibling.right = true;
    if (!r->fresh || !s->sibling.row)
        return;
    const size_t width = st->heads->of.width, at = s->n - 1 - r->fresh_at;
    memcpy((float *)(uintptr_t)r->fresh + at * width, s->sibling.row, width * sizeof(float));
}

static void learn(struct seq *s, uint32_t more)
{
    const bool right = s->sibling.right;
    if (s->drafted)
        acceptance_learn(&s->acceptance, s->draft_kind, s->drafted, right ? 0 : more);
    if (s->sibling.on)
        acceptance_learn(&s->acceptance, DRAFT_SIBLING, 1, right);
}

/* Follows the drafts of a sequence, whose first row is g's, while they equal the sampled tokens;
 * or its sibling. */
static void walk(struct stepper *st, struct gen *g, int thread)
{
    struct seq *s = g->seq;
    struct gen *const sibling = s->sibling.on ? g + s->drafted + 1 : NULL;
    const uint32_t known = s->n;
    assert(g->nth == 0 && g->drafts == s->drafted);
    for (bool agreed = true; agreed; g++) {
        struct err why = ERR_INIT;
        const uint32_t draft = g->drafts ? s->ids[s->n] : 0;
        if (choose(st, g, thread, &why) || seq_push(s, g->token.id, &why)) {
            seq_fail_for(s, &why);
            return;
        }
        g->end = s->n;
        agreed = g->drafts && g->token.id == draft && !stop_ends(&s->stop, draft);
        if (agreed || g->nth || !sibling || g->token.id != s->sibling.token ||
            stop_ends(&s->stop, g->token.id))
            continue;
        take_sibling(st, s);
        agreed = true;
        g = sibling - 1;
    }
    assert(s->n > known);
    learn(s, s->n - known - 1);
    seq_advance(s, s->n - 1);
    s->step = 1;
    s->drafted = 0;
    s->sibling.on = false;
}

/* A constraint has limits of memory and work, and caches what it computed. Whether a mask fails
 * may depend on which of its sequences came first. All ranks have to fail the same ones, so with
 * several ranks these sequences go in order. */
static bool in_order(const struct stepper *st, const struct seq *s)
{
    return st->ranks > 1 && s->constraint;
}

static void walk_those(struct stepper *st, size_t begin, size_t end, bool ordered, int thread)
{
    for (size_t i = begin; i < end; i++)
        if (st->gen[i].nth == 0 && seq_live(st->gen[i].seq) &&
            in_order(st, st->gen[i].seq) == ordered)
            walk(st, &st->gen[i], thread);
}

static void walk_range(void *arg, int thread, size_t begin, size_t end)
{
    walk_those(arg, begin, end, false, thread);
}

/* Waits for the tokens that the device samples, and for the logits of the other rows. */
static int collect(struct stepper *st, struct err *e)
{
    struct draw_results r[2];
    bool there[2] = {false, false};
    for (uint32_t i = 0; i < st->n_gen; i++) {
        struct gen *g = &st->gen[i];
        if (!seq_live(g->seq))
            continue;
        if (!there[g->set] && st->ops->drawn(st->dev, g->set, &r[g->set], e)) {
            st->ahead_no = 0;
            return -1;
        }
        there[g->set] = true;
    }
    for (uint32_t i = 0; i < st->n_gen; i++) {
        struct gen *g = &st->gen[i];
        if (seq_live(g->seq))
            g->why = draws_take(&r[g->set], &g->at, &g->token, st->vocab, &g->row);
    }
    return 0;
}

int outcome_choose(struct stepper *st, struct err *e)
{
    uint32_t rows = 0;
    if (st->draws && collect(st, e))
        return -1;
    for (uint32_t i = 0; i < st->n_gen; i++)
        rows += st->gen[i].row && st->gen[i].nth == 0;
    if (st->threads > 1 && rows > 1)
        st->ops->host_run(st->dev, walk_range, st, st->n_gen);
    else
        walk_range(st, 0, 0, st->n_gen);
    walk_those(st, 0, st->n_gen, true, 0);
    return 0;
}

/* The answer's text, without special tokens and without text after a stop sequence. */
static void whole_text(struct stepper *st, struct gen *g, size_t cut)
{
    struct seq *s = g->seq;
    struct detok d;
    uint32_t context = s->n_prompt < DETOK_CONTEXT ? s->n_prompt : DETOK_CONTEXT;
    assert(s->n > s->n_prompt);
    g->whole = st->text.len;
    if (detok_init(&d, st->tok, s->ids + s->n_prompt - context, context, true)) {
        seq_starve(s);
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

static void finish_token(struct stepper *st, struct gen *g)
{
    struct seq *s = g->seq;
    size_t len;
    buf_reset(&st->piece);
    detok_push(&s->detok, g->token.id, &st->piece);
    g->special = tokenizer_is_special(st->tok, g->token.id);
    len = st->piece.len;
    g->reason = stop_push(&s->stop, g->token.id, st->piece.p ? st->piece.p : "", &len);
    assert(len <= st->piece.len);
    size_t cut = st->piece.len - len;
    if (g->reason == STOP_LENGTH || g->reason == STOP_EOS) {
        detok_finish(&s->detok, &st->piece);
        len = st->piece.len;
    }
    g->text = st->text.len;
    g->text_len = len;
    buf_add(&st->text, st->piece.p, len);
    if (g->reason != STOP_NOT) {
        seq_end(s, g->end);
        whole_text(st, g, cut);
    }
    if (st->text.oom || st->piece.oom)
        seq_starve(s);
}

void outcome_finish(struct stepper *st, struct seq **v, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && seq_prefilling(v[i]))
            seq_advance(v[i], v[i]->cached + v[i]->step);
    for (uint32_t i = 0; i < st->n_gen; i++) {
        struct gen *g = &st->gen[i];
        struct seq *s = g->seq;
        bool reported = s->error[0] ? g->nth == 0 : g->end && !s->done;
        if (!reported)
            continue;
        if (!s->error[0])
            finish_token(st, g);
        st->apart |= s->starved && st->ranks > 1;
        st->gen[kept++] = *g;
    }
    st->n_gen = kept;
}
