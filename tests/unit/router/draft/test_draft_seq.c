/* A draft sequence against a draft shard that is played here: what the draft sequence assumes
 * about the shard's tokens and KV is true, whatever the served model decides and in whatever order
 * both are heard of. */
#include "router/draft/draft_seq.h"
#include "tests/unit/test.h"
#include <string.h>

enum { PROMPT = 7, MAX_NEW = 60, WORDS = 3 };

struct shard { /* its sequence, and what was computed for each position */
    uint32_t ids[PROMPT + MAX_NEW + 8], kv[PROMPT + MAX_NEW + 8], n;
};

static struct seq *request(struct gen_request *r, uint32_t ids[PROMPT])
{
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (uint32_t)rand() % WORDS;
    *r = (struct gen_request){.ids = ids, .n_ids = PROMPT};
    r->params.max_new_tokens = MAX_NEW;
    return seq_new(r, 5, 0);
}

static void join(struct draft_seq *t, struct shard *s)
{
    draft_seq_join(t);
    assert_true(t->own->kv.n_cached < t->own->n_tokens);
    for (uint32_t i = 0; i < t->own->kv.n_cached;
         i++) /* what is not computed again must be right */
        assert_int_equal(s->kv[i], t->own->tokens[i]);
    memcpy(s->ids, t->own->tokens, t->own->n_tokens * sizeof(s->ids[0]));
    s->n = t->own->n_tokens;
}

/* A step of the shard: KV for all it has, and another token. */
static void step(struct shard *s)
{
    memcpy(s->kv, s->ids, s->n * sizeof(s->ids[0]));
    s->ids[s->n++] = (uint32_t)rand() % WORDS;
}

static void check(const struct draft_seq *t, const struct shard *s)
{
    const struct seq *q = t->q, *own = t->own;
    assert_true(own->n_tokens >= q->n_tokens);
    assert_memory_equal(own->tokens, q->tokens, q->n_tokens * sizeof(own->tokens[0]));
    assert_true(t->n_kv < own->n_tokens);
    for (uint32_t i = 0; i < t->n_kv; i++)
        assert_int_equal(s->kv[i], own->tokens[i]);
    if (!t->wrong && t->state == DRAFT_SEQ_IN) {
        uint32_t n = t->n_there < own->n_tokens ? t->n_there : own->n_tokens;
        assert_memory_equal(s->ids, own->tokens, n * sizeof(own->tokens[0]));
    }
}

/* The served model says `n` more tokens: often what was drafted. */
static void decide(struct draft_seq *t, uint32_t n)
{
    for (; n && t->q->n_tokens < PROMPT + MAX_NEW - 1; n--) {
        uint32_t p = t->q->n_tokens;
        bool same = p < t->own->n_tokens && rand() % 4;
        seq_push(t->q, same ? t->own->tokens[p] : (uint32_t)rand() % WORDS);
    }
    draft_seq_follow(t);
}

TEST(what_it_believes_is_true)
{
    uint32_t ids[PROMPT], accepted = 0, rejoined = 0;
    srand(test_seed(2));
    for (int round = 0; round < 3000; round++) {
        struct gen_request r;
        struct shard s = {.n = 0};
        struct seq *q = request(&r, ids);
        struct draft_seq *t = draft_seq_new(q);
        assert_non_null(t);
        while (q->n_tokens < PROMPT + MAX_NEW - 1 && t->own->n_tokens < PROMPT + MAX_NEW - 1) {
            if (t->state == DRAFT_SEQ_IN && !draft_seq_current(t))
                t->state = DRAFT_SEQ_OUT;
            if (t->state == DRAFT_SEQ_OUT) {
                join(t, &s);
                t->state = DRAFT_SEQ_IN;
                rejoined++;
            }
            step(&s); /* on its way */
            if (rand() % 3 == 0)
                decide(t, (uint32_t)rand() % 4);
            uint32_t ahead = draft_seq_ahead(t);
            draft_seq_push(t, s.ids[s.n - 1], rand() % 30 == 0);
            accepted += draft_seq_ahead(t) > ahead;
            check(t, &s);
            if (rand() % 3 == 0) {
                decide(t, (uint32_t)rand() % 4);
                check(t, &s);
            }
            if (t->ended)
                decide(t, 1);
            if (rand() % 50 == 0) { /* the shard has died */
                draft_seq_reset(t);
                memset(s.kv, 0xff, sizeof(s.kv));
            }
        }
        draft_seq_free(t);
        seq_free(q);
    }
    assert_true(accepted > 10000 && rejoined > 10000);
}

/* The request's own parameters, but for what does not decide tokens. */
TEST(it_asks_for_what_decides_tokens)
{
    uint32_t ids[PROMPT];
    struct gen_request r;
    struct seq *q = request(&r, ids);
    const char *stop[] = {"x"};
    r.params.seed = 77, r.params.temperature = 0.5f, r.params.do_sample = true;
    r.params.top_n_tokens = 5, r.params.prefill_logprobs = true;
    r.params.stop = stop, r.params.n_stop = 1, r.params.adapter_id = "a";
    struct draft_seq *t = draft_seq_new(q);
    draft_seq_join(t);
    const struct gen_params *p = &t->own->req->params;
    assert_int_equal(p->seed, 77);
    assert_true(p->do_sample && p->temperature == 0.5f);
    assert_int_equal(p->max_new_tokens, MAX_NEW);
    assert_true(!p->top_n_tokens && !p->prefill_logprobs && !p->n_stop && !p->adapter_id);
    draft_seq_free(t);
    seq_free(q);
}

/* Only positions that were drafted say how often drafts are right. */
TEST(what_was_drafted_is_what_counts)
{
    uint32_t ids[PROMPT];
    struct gen_request r;
    struct seq *q = request(&r, ids);
    struct draft_seq *t = draft_seq_new(q);
    const float first = t->hits.rate;
    seq_push(q, 1); /* the draft model was late */
    draft_seq_follow(t);
    assert_true(t->hits.rate == first);
    draft_seq_join(t);
    draft_seq_push(t, 1, false);
    draft_seq_push(t, 2, false);
    seq_push(q, 1);
    draft_seq_follow(t);
    assert_true(t->hits.rate > first);
    const float second = t->hits.rate;
    seq_push(q, 0); /* and not 2 */
    draft_seq_follow(t);
    assert_true(t->hits.rate < second);
    draft_seq_free(t);
    seq_free(q);
}

int main(void) { return tests_run(NULL, NULL); }
