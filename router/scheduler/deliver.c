#include "router/scheduler/deliver.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static void must_flush(struct deliver *d, const struct gen_sink *s)
{
    for (uint32_t i = d->n; i-- > 0;)
        if (d->pending[i].arg == s->arg)
            return;
    if (d->n == DELIVER_SINKS)
        deliver_flush(d);
    assert(d->n < DELIVER_SINKS);
    d->pending[d->n++] = *s;
}

/* Copies the sink first: the request may be freed after its last event. */
static void emit(struct deliver *d, struct seq *q, const struct gen_event *ev)
{
    assert(q->req && q->req->sink.event);
    const struct gen_sink sink = q->req->sink;
    sink.event(q->req, ev);
    must_flush(d, &sink);
}

void deliver_flush(struct deliver *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->pending[i].flush)
            d->pending[i].flush(d->pending[i].arg);
    d->n = 0;
}

static struct gen_token token_at(const Generate__V3__Tokens *t, size_t i)
{
    const char *text = i < t->n_texts ? t->texts[i] : "";
    return (struct gen_token){.id = t->ids[i],
                              .logprob = i < t->n_logprobs ? t->logprobs[i] : NAN,
                              .special = i < t->n_is_special && t->is_special[i],
                              .text = text,
                              .text_len = strlen(text)};
}

/* Reads a list of tokens into *out [*n]. -1: out of memory. */
static int token_list(const Generate__V3__Tokens *t, struct rpc_mem *m,
                      const struct gen_token **out, uint32_t *n)
{
    struct gen_token *list = t->n_ids ? RPC_NEW(m, struct gen_token, t->n_ids) : NULL;
    for (size_t i = 0; list && i < t->n_ids; i++)
        list[i] = token_at(t, i);
    *out = list;
    *n = list ? (uint32_t)t->n_ids : 0;
    return list || !t->n_ids ? 0 : -1;
}

const char *deliver_check(const Generate__V3__Generation *g)
{
    if (*g->error)
        return NULL;
    if (!g->tokens || g->tokens->n_ids == 0)
        return "a generation without a token";
    return NULL;
}

static struct gen_end end_of(const Generate__V3__GeneratedText *t)
{
    static const enum gen_finish finish[] = {
        [GENERATE__V3__FINISH_REASON__FINISH_REASON_LENGTH] = FINISH_LENGTH,
        [GENERATE__V3__FINISH_REASON__FINISH_REASON_EOS_TOKEN] = FINISH_EOS,
        [GENERATE__V3__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE] = FINISH_STOP,
    };
    unsigned f = (unsigned)t->finish_reason;
    return (struct gen_end){.finish = f < 3 ? finish[f] : FINISH_LENGTH,
                            .generated_tokens = t->generated_tokens,
                            .text = t->text,
                            .text_len = strlen(t->text)};
}

static int deliver_prefill(struct deliver *d, struct seq *q, const Generate__V3__Generation *g,
                           struct rpc_mem *m)
{
    struct gen_event ev = {.type = GEN_PREFILL};
    const Generate__V3__Tokens *top = g->prefill_top_tokens;
    if (!g->prefill_tokens || !g->prefill_tokens->n_ids)
        return 0;
    if (token_list(g->prefill_tokens, m, &ev.prefill, &ev.n_prefill))
        return -1;
    if (top && top->n_ids % g->prefill_tokens->n_ids == 0 && token_list(top, m, &ev.top, &ev.n_top))
        return -1;
    emit(d, q, &ev);
    return 0;
}

int deliver_generation(struct deliver *d, struct seq *q, const Generate__V3__Generation *g,
                       int64_t now_ns, struct rpc_mem *m)
{
    struct gen_end end;
    assert(q->req && g->tokens && g->tokens->n_ids > 0); /* guaranteed by deliver_check() */
    if (deliver_prefill(d, q, g, m))
        return -1;
    if (g->generated_text)
        end = end_of(g->generated_text);
    if (!q->req->times.first)
        q->req->times.first = now_ns;
    for (size_t i = 0; i < g->tokens->n_ids; i++) {
        struct gen_event ev = {.type = GEN_TOKEN, .token = token_at(g->tokens, i)};
        if (i < g->n_top_tokens && token_list(g->top_tokens[i], m, &ev.top, &ev.n_top))
            return -1;
        if (g->generated_text && i + 1 == g->tokens->n_ids) {
            ev.end = &end;
            q->req->times.ended = now_ns;
        }
        emit(d, q, &ev);
    }
    if (g->generated_text)
        q->req = NULL;
    return 0;
}

void deliver_progress(struct deliver *d, struct seq *q, uint32_t n)
{
    struct gen_request *r = q->req;
    if (!r || !r->wants_progress || r->times.first || (r->n_progress && n <= r->n_progress))
        return;
    r->n_progress = n;
    emit(d, q, &(struct gen_event){.type = GEN_PROGRESS, .n_computed = n});
}

void deliver_error(struct deliver *d, struct seq *q, const struct err *err, int64_t now_ns)
{
    if (!q->req)
        return;
    struct gen_event ev = {.type = GEN_ERROR, .err = err};
    q->req->times.ended = now_ns;
    emit(d, q, &ev);
    q->req = NULL;
}
