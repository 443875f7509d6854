#include "router/draft/draft_seq.h"
#include <assert.h>
#include <stdlib.h>

struct draft_seq *draft_seq_new(struct seq *q)
{
    struct draft_seq *t = calloc(1, sizeof(*t));
    struct gen_request first = {.ids = q->tokens, .n_ids = q->n_prompt};
    first.params.max_new_tokens = q->cap_tokens - q->n_prompt;
    if (t && !(t->own = seq_new(&first, q->id, 0))) {
        free(t);
        t = NULL;
    }
    if (!t)
        return NULL;
    t->own->req = NULL; /* until it joins */
    t->q = q;
    t->hits = draft_hits_new();
    t->n_known = q->n_prompt;
    draft_seq_follow(t);
    return t;
}

void draft_seq_free(struct draft_seq *t)
{
    seq_free(t->own);
    free(t);
}

/* Drops the tokens of `own` from position p on: they differ from q's. */
static void cut(struct draft_seq *t, uint32_t p)
{
    t->own->n_tokens = p;
    t->wrong |= t->n_there > p;
    t->n_kv = t->n_kv < p ? t->n_kv : p;
    t->ended = false;
}

void draft_seq_follow(struct draft_seq *t)
{
    for (; t->n_known < t->q->n_tokens; t->n_known++) {
        const uint32_t p = t->n_known, id = t->q->tokens[p];
        bool drafted = p < t->own->n_tokens, right = drafted && t->own->tokens[p] == id;
        if (drafted)
            draft_hits_note(&t->hits, right);
        if (right)
            continue;
        cut(t, p);
        seq_push(t->own, id);
    }
}

void draft_seq_push(struct draft_seq *t, uint32_t id, bool last)
{
    if (t->wrong)
        return;
    if (t->n_there < t->own->n_tokens && t->own->tokens[t->n_there] != id) {
        t->wrong = true; /* q decided otherwise meanwhile */
        return;
    }
    t->n_kv = t->n_there++;
    if (t->n_there > t->own->n_tokens) {
        seq_push(t->own, id);
        t->n_there = t->own->n_tokens; /* the token may have been dropped at the capacity */
        t->ended = last;
    } else {
        t->wrong |= last; /* the shard's sequence has ended, q's has not */
    }
}

void draft_seq_join(struct draft_seq *t)
{
    const struct gen_params *p = &t->q->req->params;
    assert(t->q->req && t->own->n_tokens > 0);
    t->ask.params = *p;
    t->ask.params.prefill_logprobs = false;
    t->ask.params.top_n_tokens = t->ask.params.n_logprob_ids = 0;
    t->ask.params.n_stop = 0; /* stop strings have no effect on drafts */
    t->ask.params.adapter_id = NULL;
    t->own->req = &t->ask;
    t->n_there = t->own->n_tokens;
    t->wrong = false;
    t->own->kv.n_cached = t->n_kv < t->n_there - 1 ? t->n_kv : t->n_there - 1;
}

void draft_seq_reset(struct draft_seq *t)
{
    t->n_kv = t->n_there = 0;
    t->wrong = t->ended = false;
    t->state = DRAFT_SEQ_OUT;
}
