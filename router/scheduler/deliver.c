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

/* NULL: no tokens, or out of memory (alternatives are optional, so this is not an error). */
static const struct gen_token *token_list(const Generate__V3__Tokens *t, struct rpc_mem *m)
{
    struct gen_token *out = t->n_ids ? RPC_NEW(m, struct gen_token, t->n_ids) : NULL;
    for (size_t i = 0; out && i < t->n_ids; i++)
        out[i] = token_at(t, i);
    return out;
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

void deliver_generation(struct deliver *d, struct seq *q, const Generate__V3__Generation *g,
                        int64_t now_ns, struct rpc_mem *m)
{
    struct gen_end end;
    assert(q->req && g->tokens && g->tokens->n_ids > 0); /* guaranteed by deliver_check() */
    if (g->prefill_tokens && g->prefill_tokens->n_ids) {
        struct gen_event ev = {.type = GEN_PREFILL,
                               .prefill = token_list(g->prefill_tokens, m),
                               .n_prefill = (uint32_t)g->prefill_tokens->n_ids};
        const Generate__V3__Tokens *top = g->prefill_top_tokens;
        if (top && top->n_ids % g->prefill_tokens->n_ids == 0 && (ev.top = token_list(top, m)))
            ev.n_top = (uint32_t)top->n_ids;
        if (ev.prefill)
            emit(d, q, &ev);
    }
    if (g->generated_text)
        end = end_of(g->generated_text);
    if (!q->req->times.first)
        q->req->times.first = now_ns;
    for (size_t i = 0; i < g->tokens->n_ids; i++) {
        struct gen_event ev = {.type = GEN_TOKEN, .token = token_at(g->tokens, i)};
        if (i < g->n_top_tokens && (ev.top = token_list(g->top_tokens[i], m)))
            ev.n_top = (uint32_t)g->top_tokens[i]->n_ids;
        if (g->generated_text && i + 1 == g->tokens->n_ids) {
            ev.end = &end;
            q->req->times.ended = now_ns;
        }
        emit(d, q, &ev);
    }
    if (g->generated_text)
        q->req = NULL;
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
