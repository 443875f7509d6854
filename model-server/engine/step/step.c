#include "common/clock.h"
#include "model-server/engine/step/drafts.h"
#include "model-server/engine/step/memory.h"
#include "model-server/engine/step/outcome.h"
#include "model-server/engine/step/put.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Logits take vocab * 4 bytes per row. Prompts with requested log-probabilities need a row per
 * token; they are computed in passes of this size. */
enum { PASS_BYTES = 64 << 20 };

/* ---------------------------------------------------------------- passes through the model */

/* An empty pass; rows for the draft head, if it is on, are stored at `capture`. */
static struct ragged empty(struct stepper *st, float *capture)
{
    st->capture = st->heads && heads_keep(st->heads) ? capture : NULL;
    if (st->heads)
        model_capture(st->model, st->capture);
    st->n_copies = 0;
    return (struct ragged){.ids = st->ids,
                           .pos = st->pos,
                           .slots = st->slots,
                           .spans = st->spans,
                           .out_rows = st->out_rows,
                           .window_slots = st->window ? st->window_slots : NULL};
}

/* Computes the next tokens of the prompt with all their logits, for the log-probabilities of the
 * tokens after them. */
static int prompt_pass(struct stepper *st, struct seq *s, uint32_t len, struct err *e)
{
    assert(s->prompt_logprob && s->start + len <= s->n_prompt);
    if (stepper_reserve(st, len, 0, e) || step_reserve_logits(st, len, e) ||
        step_reserve_media(st, &s, 1, e))
        return -1;
    struct ragged b = empty(st, st->hidden);
    step_put(st, &b, s, len);
    for (b.n_out = 0; b.n_out < len; b.n_out++)
        st->out_rows[b.n_out] = b.n_out;
    float *const logits = stepper_rows(st, false);
    if (model_forward(st->model, &b, logits, e))
        return -1;
    for (uint32_t i = 0; i < len && s->start + i + 1 < s->n_prompt; i++) {
        uint32_t next = s->start + i + 1;
        float *row = logits + (size_t)i * st->vocab;
        if (s->ids[next] >= st->vocab) /* a placeholder */
            continue;
        s->prompt_logprob[next] = row_logprob(row, st->vocab, s->ids[next], st->filter);
        if (s->top_n)
            row_best(row, st->vocab, s->top_n, st->filter, s->prompt_top + (size_t)next * s->top_n,
                     s->prompt_top_logprob + (size_t)next * s->top_n);
    }
    s->start += len;
    return st->heads ? heads_take(st->heads, s, s->start, e) : 0;
}

/* The end of a pass: not inside an image whose tokens attend to each other. */
static uint32_t behind_picture(const struct seq *s, uint32_t end)
{
    return s->media ? media_end(s->media, end) : end;
}

/* Leaves the last token of the chunk to the joint pass, unless the prompt continues and the token
 * yields nothing. If other tokens of the chunk attend to the last token, it is computed with them
 * and again in the joint pass, where all keys are cached. */
static int walk_prompt(struct stepper *st, struct seq *s, struct err *e)
{
    const uint64_t rows = PASS_BYTES / step_row_bytes(st);
    const uint32_t most = rows ? (uint32_t)rows : 1, all = s->cached + s->step;
    const bool seen = all == s->n_prompt && behind_picture(s, all - 1) == all;
    const uint32_t end = all < s->n_prompt || seen ? all : all - 1;
    while (s->start < end) {
        const uint32_t left = end - s->start;
        const uint32_t to = behind_picture(s, s->start + (left < most ? left : most));
        if (prompt_pass(st, s, to - s->start, e))
            return -1;
    }
    s->start -= seen && s->start == all;
    return 0;
}

/* Upper bound of the rows of logits of a step of `v`. */
static uint32_t most_rows(struct seq *const *v, uint32_t n)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        rows += 1 + v[i]->drafted + v[i]->sibling.on;
    return rows;
}

/* Tokens of siblings. */
static uint32_t sibling_rows(const struct stepper *st, struct seq *const *v, uint32_t n)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        tokens += v[i]->sibling.on ? sibling_tokens(v[i]->n, st->block_size) : 0;
    return tokens;
}

/* Tokens that recurrent sequences recompute. */
static uint32_t lags(struct seq *const *v, uint32_t n)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        tokens += seq_live(v[i]) ? seq_lag(v[i]) : 0;
    return tokens;
}

/* Allocates memory for all requests of `v` to the device. */
static int begin_draws(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    return draws_begin(&st->rows, v, n, most_rows(v, n), st->vocab, e);
}

/* `s` is in the batch: requests a row for its last known token and for each of its drafts.
 * Returns the place of the first result. */
static struct draw_place want_rows(struct stepper *st, struct ragged *b, const struct seq *s)
{
    struct draw_place first = {.row = b->n_out};
    assert(b->n_tokens > s->drafted);
    for (uint32_t j = 0; j <= s->drafted; j++) {
        st->out_rows[b->n_out++] = b->n_tokens - 1 - s->drafted + j;
        if (!st->draws)
            continue;
        struct draw_place at = draws_add(&st->rows, s, j, DRAW_KNOWN);
        first = j ? first : at;
    }
    return first;
}

static int joint_pass(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint64_t tokens = 0;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && !seq_is_ahead(st, v[i])) {
            tokens += v[i]->cached + v[i]->step - v[i]->start + sibling_rows(st, &v[i], 1);
            rows += seq_rows(v[i]);
        }
    if (!tokens)
        return 0;
    if (tokens > INT32_MAX)
        return err_set(e, ERR_VALIDATION, "a step of %llu tokens is too large",
                       (unsigned long long)tokens);
    if (stepper_reserve(st, (uint32_t)tokens, rows, e) || step_reserve_media(st, v, n, e))
        return -1;
    if (st->draws && begin_draws(st, v, n, e))
        return -1;
    struct ragged b = empty(st, st->hidden);
    for (uint32_t i = 0; i < n; i++) {
        if (!seq_live(v[i]) || seq_is_ahead(st, v[i]) || v[i]->start == v[i]->cached + v[i]->step)
            continue;
        step_put(st, &b, v[i], v[i]->cached + v[i]->step - v[i]->start);
        if (!seq_prefilling(v[i]))
            want_rows(st, &b, v[i]);
        step_put_sibling(st, &b, v[i]);
    }
    assert(b.n_tokens <= tokens && b.n_spans <= st->cap_spans);
    assert(st->draws || st->ahead_rows + b.n_out <= st->cap_rows);
    if (step_copy_blocks(st, e))
        return -1;
    if (st->draws && b.n_out)
        return model_draw(st->model, &b, st->rows.v, !st->ahead_set, e);
    return model_forward(st->model, &b, stepper_rows(st, false), e);
}

static int forward(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        v[i]->start = seq_from(v[i]);
        if (seq_live(v[i]) && v[i]->prompt_logprob && v[i]->cached < v[i]->n_prompt &&
            walk_prompt(st, v[i], e))
            return -1;
    }
    return joint_pass(st, v, n, e);
}

int stepper_state(struct stepper *st, struct seq *s, uint32_t cell, struct err *e)
{
    const uint32_t lag = seq_lag(s);
    float *const fresh = (float *)(uintptr_t)s->head.fresh;
    const uint32_t fresh_at = s->head.fresh_at, start = s->start;
    if (!lag)
        return model_state_copy(st->model, &s->cell[0], &cell, 1, e);
    if (step_reserve_lists(st, &s, 1, e) || stepper_reserve(st, lag, 0, e) ||
        step_reserve_media(st, &s, 1, e))
        return -1;
    struct ragged b = empty(st, st->hidden);
    s->start = seq_from(s);
    step_put(st, &b, s, lag);
    assert(b.n_tokens == lag && b.n_spans <= st->cap_spans);
    for (uint32_t i = 0; i < b.n_spans; i++)
        st->spans[i].state_out = cell;
    s->start = start;
    s->head.fresh = fresh;
    s->head.fresh_at = fresh_at;
    return model_forward(st->model, &b, NULL, e);
}

static bool all_ahead(const struct stepper *st, struct seq **v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && !seq_is_ahead(st, v[i]))
            return false;
    return st->ahead_no != 0;
}

bool stepper_is_ahead(const struct stepper *st, struct seq *const *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && seq_is_ahead(st, v[i]))
            return true;
    return false;
}

static uint32_t next_no(const struct stepper *st)
{
    return st->ahead_no + 1 ? st->ahead_no + 1 : 1;
}

int stepper_ahead(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    if (st->draws && all_ahead(st, v, n))
        return 0;
    const uint32_t no = next_no(st), rows = most_rows(v, n);
    const uint32_t tokens = rows + lags(v, n) + sibling_rows(st, v, n);
    st->ahead_no = st->ahead_rows = st->ahead_left = 0; /* none until this has succeeded */
    int64_t t0 = clock_ns();
    if (step_reserve_lists(st, v, n, e) || stepper_reserve(st, tokens, 0, e) ||
        step_reserve_media(st, v, n, e) || stepper_reserve_ahead(st, tokens, e) ||
        (st->draws && begin_draws(st, v, n, e)))
        return -1;
    struct ragged b = empty(st, st->hidden_ahead);
    for (uint32_t i = 0; i < n; i++) {
        if (!seq_live(v[i]))
            continue;
        assert(v[i]->step == 1 + v[i]->drafted && !seq_prefilling(v[i]));
        v[i]->start = seq_from(v[i]);
        v[i]->ahead = no;
        st->ahead_left++;
        step_put(st, &b, v[i], seq_lag(v[i]) + v[i]->step);
        v[i]->ahead_at = want_rows(st, &b, v[i]);
        step_put_sibling(st, &b, v[i]);
    }
    assert(b.n_tokens <= tokens && b.n_spans <= st->cap_spans);
    assert(st->draws || b.n_out <= st->cap_rows);
    if (!b.n_out)
        return 0;
    if (step_copy_blocks(st, e))
        return -1;
    if (st->draws ? model_draw(st->model, &b, st->rows.v, st->ahead_set = !st->ahead_set, e)
                  : model_forward(st->model, &b, st->logits, e))
        return -1;
    st->ahead_no = no;
    st->ahead_rows = st->draws ? 0 : b.n_out;
    st->enqueued_ns = clock_ns();
    st->ahead_ns = st->enqueued_ns - t0;
    return 0;
}

/* ---------------------------------------------------------------- tokens fed on the device */

static bool ends_now(const struct seq *s)
{
    return s->stop.generated + 1 >= s->stop.rules.max_new_tokens;
}

/* True if the step after the run-ahead may be enqueued before its tokens are known. A sequence
 * that reaches its token limit is left out. A sequence that needs the host between the two steps
 * prevents it for all. The result is the same on every rank. */
static bool can_feed(const struct stepper *st, struct seq **v, uint32_t n)
{
    uint32_t rows = 0;
    if (!st->draws || !st->enqueues || st->drafts || !all_ahead(st, v, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct seq *s = v[i];
        if (!seq_live(s) || ends_now(s))
            continue;
        if (draws_wait(s) || !seq_has_room(s, (uint64_t)s->cached + 2, st->block_size))
            return false;
        rows++;
    }
    return rows > 0;
}

/* Enqueues that step. Its ids are read from where the run-ahead stores its tokens. It then is the
 * run-ahead. */
static int feed(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    uint32_t no = next_no(st);
    st->ahead_no = 0; /* until this has worked */
    if (stepper_reserve(st, n, 0, e) || step_reserve_media(st, v, n, e) || begin_draws(st, v, n, e))
        return -1;
    struct ragged b = empty(st, st->hidden);
    b.drawn = st->drawn;
    b.drawn_set = st->ahead_set;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        if (!seq_live(s) || ends_now(s))
            continue;
        const uint32_t last = s->ahead_at.row;
        s->start = s->n;
        step_put(st, &b, s, 1);
        st->ids[b.n_tokens - 1] = 0;
        st->drawn[b.n_tokens - 1] = last;
        st->out_rows[b.n_out++] = b.n_tokens - 1;
        s->ahead = no;
        s->ahead_at = draws_add(&st->rows, s, 1, last);
    }
    if (model_draw(st->model, &b, st->rows.v, !st->ahead_set, e))
        return -1;
    st->ahead_set = !st->ahead_set;
    st->ahead_no = no;
    st->enqueued_ns = clock_ns();
    return 0;
}

/* ---------------------------------------------------------------- a step */

/* Time that a run-ahead on an asynchronous device ran before the call: since the results before
 * it were ready. */
static int64_t early(const struct stepper *st, int64_t t0)
{
    int64_t since = st->enqueued_ns > st->ready_ns ? st->enqueued_ns : st->ready_ns;
    return st->early_ns && t0 > since ? t0 - since : 0;
}

/* The step after a failed one may have overwritten its initial cells, so it cannot be
 * repeated. */
static void lose_states(struct seq **v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i]->cells && seq_live(v[i]))
            seq_fail(v[i], "its recurrent state was lost with a failed step");
}

/* Copies the blocks of accepted siblings to the sequences' own blocks. */
static int keep_siblings(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    st->n_copies = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        if (s->sibling.right && seq_live(s)) /* n: including the sibling and one more token */
            step_copy_block(st, s->sibling.block, s->blocks[(s->n - 2) / st->block_size]);
        s->sibling.right = false;
    }
    return step_copy_blocks(st, e);
}

/* For the next drafts. The step's tokens are sampled, so it must not fail any more: without its
 * rows a sequence has no drafts of the head for a while. Ranks have to agree on drafts. */
static int take_rows(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        struct err why = ERR_INIT;
        if (!seq_live(v[i]) || !heads_take(st->heads, v[i], v[i]->cached, &why))
            continue;
        if (st->ranks > 1) {
            *e = why;
            return -1;
        }
        v[i]->head.begun = false;
        v[i]->head.n = 0;
    }
    return 0;
}

int stepper_run(struct stepper *st, struct seq **v, uint32_t n, struct err *e)
{
    int64_t t0 = clock_ns();
    st->n_gen = 0;
    st->chosen = st->apart = false;
    st->text.oom = st->piece.oom = false;
    buf_reset(&st->text);
    if (step_reserve_lists(st, v, n, e) || forward(st, v, n, e))
        return -1;
    outcome_list(st, v, n);
    const uint32_t used = st->ahead_no;
    bool fed = false;
    if (st->draws) {
        st->early_ns = early(st, t0);
        fed = can_feed(st, v, n);
        if (fed && feed(st, v, n, e)) {
            lose_states(v, n);
            return -1;
        }
    }
    if (outcome_choose(st, e) || (st->chosen = true, keep_siblings(st, v, n, e))) {
        if (fed)
            lose_states(v, n);
        return -1;
    }
    /* except those that were enqueued from the device's tokens */
    for (uint32_t i = 0; i < st->n_gen; i++)
        if (st->gen[i].seq->ahead == used) {
            st->gen[i].seq->ahead = 0;
            st->ahead_left -= st->ahead_left > 0;
        }
    if (!st->ahead_left)
        st->ahead_rows = 0;
    int64_t t1 = st->ready_ns = clock_ns();
    outcome_finish(st, v, n);
    if (st->apart)
        return err_nomem(e);
    if (st->heads && take_rows(st, v, n, e))
        return -1;
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
            s->step = 1 + s->drafted;
            continue;
        }
        s->step = rest < left ? rest : left ? left : 1;
        if (s->media)
            s->step = media_end(s->media, s->cached + s->step) - s->cached;
        left -= s->step < left ? s->step : left;
    }
}
