#include "model-server/engine/step/drafts.h"
#include "model-server/spec/ngram.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Most tokens that a recurrent sequence recomputes; then a step without drafts brings its state
 * up to date. */
enum { MOST_LAG = 4 };

int seq_offer(struct seq *s, uint32_t at, const uint32_t *ids, uint32_t n, struct err *e)
{
    assert(ids || !n);
    s->n_offer = 0;
    if (n > s->cap_offer) {
        uint32_t *more = realloc(s->offer, n * sizeof(*more));
        if (!more)
            return err_nomem(e);
        s->offer = more;
        s->cap_offer = n;
    }
    if (n)
        memcpy(s->offer, ids, n * sizeof(*ids));
    s->offer_at = at;
    s->n_offer = n;
    return 0;
}

/* Most drafts of `s`: its last permitted token needs none, and all drafts must fit into its
 * blocks. */
static uint32_t most_of(const struct drafting *d, const struct seq *s)
{
    uint32_t left = s->stop.rules.max_new_tokens - s->stop.generated;
    uint64_t room = seq_room(s, d->block_size);
    uint64_t most = d->most;
    if (!seq_decoding(s) || s->n == s->n_prompt || left < 2 || room <= s->n ||
        seq_lag(s) >= MOST_LAG)
        return 0;
    most = most < left - 1 ? most : left - 1;
    return (uint32_t)(most < room - s->n ? most : room - s->n);
}

/* Uses the offered tokens after the last known token, if all offered tokens before it match. */
static uint32_t take_offer(struct seq *s, uint32_t most)
{
    if (s->offer_at > s->n || s->n - s->offer_at >= s->n_offer ||
        memcmp(s->offer, s->ids + s->offer_at, (s->n - s->offer_at) * sizeof(*s->offer)) != 0)
        return 0;
    assert(s->n_offer <= s->cap_offer);
    uint32_t from = s->n - s->offer_at, n = s->n_offer - from;
    n = n < most ? n : most;
    memcpy(s->ids + s->n, s->offer + from, n * sizeof(*s->offer));
    s->draft_kind = DRAFT_OFFERED;
    return n;
}

/* Uses the tokens that followed an earlier occurrence of the n-gram. A match that overlaps the
 * end repeats itself, as in a loop. */
static uint32_t take_match(struct seq *s, uint32_t most, struct ngram g)
{
    assert(g.at < s->n);
    for (uint32_t i = 0; i < most; i++)
        s->ids[s->n + i] = s->ids[g.at + i];
    s->draft_kind = draft_kind_of(g.match);
    return most;
}

/* Appends drafts to ids, which has capacity for all tokens of the request. With head.most > 0 the
 * head drafts instead. */
static uint32_t propose(const struct drafting *d, struct seq *s)
{
    const uint32_t most = most_of(d, s);
    uint32_t n = most ? take_offer(s, most) : 0;
    if (n || !most)
        return n;
    const struct ngram g = ngram_find(s->ids, s->n);
    const float *rate = s->acceptance.rate;
    if (d->heads && heads_draft(d->heads) && heads_ready(d->heads, s) &&
        !(g.match && rate[draft_kind_of(g.match)] > rate[DRAFT_HEAD])) {
        s->head.most = most < HEAD_MOST ? most : HEAD_MOST;
        s->draft_kind = DRAFT_HEAD;
        return 0;
    }
    return g.match ? take_match(s, most, g) : 0;
}

/* Chooses the drafts of a step; `w` is the step without drafts. */
static void choose(const struct drafting *d, struct seq **v, uint32_t n, struct step_worth *w)
{
    uint32_t drafts = 0;
    bool any = true;
    for (uint32_t j = 1; any && j <= d->most; j++) {
        any = false;
        for (uint32_t i = 0; i < n; i++) {
            struct seq *s = v[i];
            const double gain = draft_gain(&s->acceptance, s->draft_kind, j);
            if (s->proposed < j || s->drafted != j - 1 || drafts == d->most_rows ||
                !worth_row(w, gain))
                continue;
            w->rows++, drafts++;
            w->tokens += gain;
            s->drafted++, s->step++;
            any = true;
        }
    }
}

/* Cost of a sibling in rows, including the copies of its block. */
enum { SIBLING_ROWS = 3 };

/* Chooses the sequences that also verify their second-best first draft; `w` is the step without
 * siblings. */
static int choose_siblings(const struct drafting *d, struct seq **v, uint32_t n,
                           struct step_worth *w, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        const double gain = draft_gain(&s->acceptance, DRAFT_SIBLING, 1);
        if (!s->drafted || s->draft_kind != DRAFT_HEAD || !s->head.has_second)
            continue;
        const bool worth = worth_pass(w, 0, SIBLING_ROWS, gain);
        const int has = worth ? sibling_take(&s->sibling, d->siblings, s->max_blocks, e) : 0;
        if (has < 0)
            return -1;
        if (!has) {
            acceptance_fade(&s->acceptance, DRAFT_SIBLING);
            continue;
        }
        s->sibling.on = true;
        s->sibling.token = s->head.second;
        w->rows += SIBLING_ROWS;
        w->tokens += gain;
    }
    return 0;
}

int drafts_plan(const struct drafting *d, struct seq **v, uint32_t n, struct err *e)
{
    struct step_worth w = {.cost = d->cost};
    if (!d->most)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = v[i];
        assert(s->step >= s->drafted);
        s->step -= s->drafted; /* undo an earlier plan */
        s->drafted = 0;
        s->head.most = 0;
        s->sibling.on = false;
        s->proposed = seq_live(s) ? propose(d, s) : 0;
        w.rows += seq_live(s) ? s->step + seq_lag(s) : 0;
        /* a prompt token counts as much as a generated one */
        w.tokens += seq_live(s) ? s->step : 0;
    }
    if (d->heads && heads_propose(d->heads, v, n, &w, e))
        return -1;
    choose(d, v, n, &w);
    if (d->siblings && choose_siblings(d, v, n, &w, e))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (seq_live(v[i]) && (v[i]->proposed || v[i]->head.most) && !v[i]->drafted)
            acceptance_fade(&v[i]->acceptance, v[i]->draft_kind);
    return 0;
}
