/* Answers of /v1/completions, whole and as events. */
#include "common/utf8.h"
#include "router/api/openai/completions.h"
#include "router/call/accounting.h"
#include <math.h>
#include <string.h>

enum { TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET };

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void item(struct buf *list)
{
    if (list->len)
        buf_ch(list, ',');
}

/* Adds a token to the four parallel lists of OpenAI's logprobs. */
static void note_logprob(const struct openai *o, struct openai_sequence *s,
                         const struct gen_token *t, const struct gen_token *top, uint32_t n_top)
{
    struct buf *alternatives = &s->lists[TOP_LOGPROBS];
    item(&s->logprobs);
    openai_token_name(&s->logprobs, o, t);
    item(&s->lists[TOKEN_LOGPROBS]);
    buf_json_f32(&s->lists[TOKEN_LOGPROBS], t->logprob);
    item(&s->lists[TEXT_OFFSET]);
    buf_u64(&s->lists[TEXT_OFFSET], s->chars);
    if (!t->special) /* special tokens are listed, but are not part of the text */
        s->chars += utf8_count(t->text, t->text_len);
    item(alternatives);
    if (isnan(t->logprob)) {
        buf_str(alternatives, "null");
        return;
    }
    buf_ch(alternatives, '{');
    bool chosen = false;
    for (uint32_t i = 0; i < n_top; i++) {
        buf_str(alternatives, i ? "," : "");
        openai_token_name(alternatives, o, &top[i]);
        buf_ch(alternatives, ':');
        buf_json_f32(alternatives, top[i].logprob);
        chosen |= o->ids_as_text ? top[i].id == t->id
                                 : top[i].text_len == t->text_len &&
                                       !memcmp(top[i].text, t->text, t->text_len);
    }
    if (!chosen) { /* OpenAI lists the chosen token too */
        buf_str(alternatives, n_top ? "," : "");
        openai_token_name(alternatives, o, t);
        buf_ch(alternatives, ':');
        buf_json_f32(alternatives, t->logprob);
    }
    buf_ch(alternatives, '}');
}

static void logprobs(struct buf *out, const struct openai *o, struct openai_sequence *s)
{
    static const char *const names[] = {"],\"token_logprobs\":[", "],\"top_logprobs\":[",
                                        "],\"text_offset\":["};
    if (!o->logprobs) {
        buf_str(out, "null");
        return;
    }
    buf_str(out, "{\"tokens\":[");
    buf_add(out, s->logprobs.p ? s->logprobs.p : "", s->logprobs.len);
    out->oom |= s->logprobs.oom;
    buf_reset(&s->logprobs);
    for (int i = 0; i < 3; i++) {
        buf_str(out, names[i]);
        buf_add(out, s->lists[i].p ? s->lists[i].p : "", s->lists[i].len);
        out->oom |= s->lists[i].oom;
        buf_reset(&s->lists[i]);
    }
    buf_str(out, "]}");
}

/* The prompt precedes the first token of a choice. */
static void take_token(struct openai *o, const struct generation *g, const struct gen_event *ev,
                       bool first)
{
    struct openai_sequence *s = &o->seq[g->index];
    const struct ask *q = &o->asks[g->index / o->each];
    if (first && o->echo)
        buf_add(&s->text, q->inputs, q->n_inputs);
    if (o->only_prompt)
        return;
    if (first && o->echo) /* listed tokens may be pieces of characters, and count as more */
        s->chars = q->n_chars;
    openai_text(o, g, ev, &s->text);
    if (o->logprobs)
        note_logprob(o, s, &ev->token, ev->top, openai_tops(o, ev->n_top));
}

static void take_prefill(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    for (uint32_t i = 0; o->echo && o->logprobs && i < ev->n_prefill; i++) {
        struct gen_token t = ev->prefill[i];
        t.special |= tokenizer_is_special(c->edge->tokenizer, t.id);
        uint32_t k = ev->n_top / ev->n_prefill;
        note_logprob(o, &o->seq[g->index], &t, k ? ev->top + (size_t)i * k : NULL,
                     openai_tops(o, k));
    }
    openai_prompt_logprobs_take(o, g, ev);
}

/* ---------------------------------------------------------------- chunks */

static void stream_head(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    buf_fmt(out, "data: {\"object\":\"text_completion\",\"id\":\"%s\",\"created\":%lld", o->id,
            (long long)c->created_unix);
}

static void model(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    buf_str(out, ",\"model\":");
    string(out, o->model);
    buf_str(out, ",\"system_fingerprint\":");
    string(out, c->edge->fingerprint);
}

static void choice(struct buf *out, struct openai *o, const struct generation *g, uint32_t index,
                   const char *finish)
{
    struct openai_sequence *s = &o->seq[g->index];
    buf_fmt(out, "{\"index\":%u,\"text\":", index);
    buf_json_str(out, s->text.p ? s->text.p : "", s->text.len);
    buf_str(out, ",\"logprobs\":");
    logprobs(out, o, s);
    openai_token_ids(out, o, g);
    if (!o->stream || g->answer.n_tokens == 1)
        openai_prompt_ids(out, o, g);
    openai_prompt_logprobs(out, o, g);
    if (finish)
        buf_fmt(out, ",\"finish_reason\":\"%s\"}", finish);
    else
        buf_str(out, ",\"finish_reason\":null}");
    out->oom |= s->text.oom;
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    buf_reset(&o->seq[g->index].text);
    take_token(o, g, ev, g->answer.n_tokens == 1);
    stream_head(out, c);
    if (ev->end)
        model(out, c);
    buf_str(out, ",\"choices\":[");
    choice(out, o, g, g->index, ev->end ? openai_finish(o, g) : NULL);
    buf_ch(out, ']');
    if (!ev->end)
        model(out, c);
    if (o->include_usage && !o->continuous_usage) /* it follows in a chunk of its own */
        buf_str(out, ",\"usage\":null");
    else if (ev->end || o->continuous_usage) {
        buf_str(out, ",\"usage\":");
        openai_counts(out, g->r.n_input, o->only_prompt ? 0 : g->answer.n_tokens, g->r.n_cached);
    }
    openai_told_timings(out, o, g);
    buf_str(out, "}\n\n");
}

static void stream_progress(struct call *c, struct generation *g, const struct gen_event *ev)
{
    stream_head(&c->out, c);
    buf_fmt(&c->out,
            ",\"choices\":[{\"index\":%u,\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}]",
            g->index);
    model(&c->out, c);
    openai_progress(&c->out, c->state, g, ev);
    buf_str(&c->out, "}\n\n");
}

static void stream_finish(struct call *c)
{
    const struct openai *o = c->state;
    if (o->include_usage) {
        stream_head(&c->out, c);
        buf_str(&c->out, ",\"choices\":[]");
        model(&c->out, c);
        buf_str(&c->out, ",\"usage\":");
        openai_usage(&c->out, c);
        openai_told_timings(&c->out, o, &c->gen[0]);
        buf_str(&c->out, "}\n\n");
    }
    buf_str(&c->out, "data: [DONE]\n\n");
}

/* ---------------------------------------------------------------- one answer */

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    take_token(c->state, g, ev, g->answer.n_tokens == 1);
}

static void finish(struct call *c)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    buf_fmt(out, "{\"object\":\"text_completion\",\"id\":\"%s\",\"created\":%lld", o->id,
            (long long)c->created_unix);
    model(out, c);
    buf_str(out, ",\"choices\":[");
    uint32_t *rank = ARENA_NEW(&c->arena, uint32_t, o->each);
    out->oom |= !rank;
    for (uint32_t ask = 0; rank && ask < o->n_asks; ask++) {
        openai_rank(o, c, ask, rank);
        for (uint32_t k = 0; k < o->shown; k++) {
            const struct generation *g = &c->gen[ask * o->each + rank[k]];
            buf_str(out, ask + k ? "," : "");
            choice(out, o, g, ask * o->shown + k, openai_finish(o, g));
        }
    }
    buf_str(out, "],\"usage\":");
    openai_usage(out, c);
    openai_transfer(out, c);
    openai_verbose(out, o, &c->gen[0]);
    openai_told_timings(out, o, &c->gen[0]);
    buf_ch(out, '}');
    account_headers(c, 0, c->n_gen, false);
}

const struct format completions_object = {take_prefill, collect_token, finish};
const struct format completions_stream = {.prefill = take_prefill,
                                          .token = stream_token,
                                          .finish = stream_finish,
                                          .error = openai_error_event,
                                          .progress = stream_progress};
