/* Answers in the form of llama.cpp's /completion. */
#include "common/clock.h"
#include "common/utf8.h"
#include "router/api/llama/llama.h"
#include "router/call/accounting.h"
#include <string.h>

static void string(struct buf *out, const char *s) { buf_json_str(out, s, strlen(s)); }

static void settings(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct gen_params *p = &g->r.params;
    buf_str(out, ",\"generation_settings\":{\"seed\":");
    buf_u64(out, p->seed);
    buf_fmt(out,
            ",\"temperature\":%g,\"top_k\":%u,\"top_p\":%g,\"min_p\":%g,\"typical_p\":%g,"
            "\"top_n_sigma\":%g,\"xtc_probability\":%g,\"xtc_threshold\":%g,"
            "\"repeat_penalty\":%g,\"presence_penalty\":%g,\"frequency_penalty\":%g,"
            "\"dry_multiplier\":%g,\"dry_base\":%g,\"dry_allowed_length\":%d,"
            "\"dry_penalty_last_n\":%d,\"n_predict\":%u,\"n_probs\":%u,\"stream\":%s,"
            "\"ignore_eos\":%s,\"stop\":[",
            p->do_sample ? (double)p->temperature : 0.0, p->top_k, (double)p->top_p,
            (double)p->min_p, (double)p->typical_p, (double)p->top_n_sigma,
            (double)p->xtc_probability, (double)p->xtc_threshold, (double)p->repetition_penalty,
            (double)p->openai_presence_penalty, (double)p->openai_frequency_penalty,
            (double)p->dry_multiplier, (double)p->dry_base, p->dry_allowed_length,
            p->dry_penalty_last_n, p->max_new_tokens, o->llama->n_probs,
            o->stream ? "true" : "false", p->ignore_eos ? "true" : "false");
    for (uint32_t i = 0; i < p->n_stop; i++) {
        buf_str(out, i ? "," : "");
        string(out, p->stop[i]);
    }
    buf_str(out, "],\"logit_bias\":[");
    for (uint32_t i = 0; i < p->n_bias; i++) {
        buf_fmt(out, "%s{\"token\":%u,\"bias\":", i ? "," : "", p->bias_ids[i]);
        buf_json_f32(out, p->bias[i]);
        buf_ch(out, '}');
    }
    buf_str(out, "]}");
}

static double either(const struct opt_f32 *server, double usual)
{
    return server->set ? (double)server->v : usual;
}

void llama_defaults(const struct sampling_defaults *d, struct buf *out)
{
    buf_fmt(out,
            "\"temperature\":%g,\"top_k\":%d,\"top_p\":%g,\"min_p\":%g,\"typical_p\":%g,"
            "\"repeat_penalty\":%g,\"presence_penalty\":%g,\"frequency_penalty\":%g,"
            "\"seed\":4294967295,\"n_predict\":-1,\"n_probs\":0,\"stream\":false,\"ignore_eos\":"
            "false,\"stop\":[]",
            either(&d->temperature, LLAMA_TEMPERATURE),
            d->top_k.set ? (int)d->top_k.v : (int)LLAMA_TOP_K, either(&d->top_p, LLAMA_TOP_P),
            either(&d->min_p, LLAMA_MIN_P), either(&d->typical_p, 1),
            either(&d->repetition_penalty, 1), either(&d->openai_presence_penalty, 0),
            either(&d->openai_frequency_penalty, 0));
}

/* ---------------------------------------------------------------- tokens */

/* The members of a token. Bytes that are not UTF-8 alone are listed beside U+FFFD. */
static void token_members(struct buf *out, const struct gen_token *t)
{
    buf_fmt(out, "{\"id\":%u,\"token\":", t->id);
    buf_json_str(out, t->text, t->text_len);
    buf_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < t->text_len; i++)
        buf_fmt(out, "%s%u", i ? "," : "", (unsigned char)t->text[i]);
    buf_str(out, "],\"logprob\":");
    buf_json_f32(out, t->logprob);
}

static void probability(struct buf *out, const struct openai *o, const struct gen_event *ev)
{
    const uint32_t n = ev->n_top < o->llama->n_probs ? ev->n_top : o->llama->n_probs;
    if (out->len)
        buf_ch(out, ',');
    token_members(out, &ev->token);
    buf_str(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_str(out, i ? "," : "");
        token_members(out, &ev->top[i]);
        buf_ch(out, '}');
    }
    buf_str(out, "]}");
}

/* t_max_predict_ms: time since the first token, checked when a line is complete. */
static bool out_of_time(const struct openai *o, const struct generation *g)
{
    const struct gen_times *t = &g->r.times;
    const struct openai_sequence *s = &o->seq[g->index];
    return o->llama->predict_ns && s->chars && t->first &&
           clock_ns() - t->first > o->llama->predict_ns;
}

static void take(struct openai *o, struct generation *g, const struct gen_event *ev)
{
    struct openai_sequence *s = &o->seq[g->index];
    const size_t before = s->text.len;
    if (o->only_prompt)
        return;
    openai_text(o, g, ev, &s->text);
    if (o->llama->n_probs)
        probability(&s->logprobs, o, ev);
    if (o->llama->with_tokens || o->stream)
        buf_fmt(&s->ids, s->ids.len ? ",%u" : "%u", ev->token.id);
    if (s->text.len > before && memchr(s->text.p + before, '\n', s->text.len - before))
        s->chars = 1; /* a line break occurred */
    g->enough |= !ev->end && out_of_time(o, g);
}

/* ---------------------------------------------------------------- answers */

static const char *stop_type(const struct openai *o, const struct generation *g)
{
    const struct stop_trim *t = &o->seq[g->index].trim;
    if (g->enough) /* t_max_predict_ms */
        return "limit";
    if (t->matched || g->answer.finish == FINISH_STOP)
        return "word";
    return g->answer.ended && g->answer.finish == FINISH_EOS && !o->only_prompt ? "eos" : "limit";
}

static void put_list(struct buf *out, const char *name, struct buf *items)
{
    buf_fmt(out, ",\"%s\":[", name);
    buf_add(out, items->p ? items->p : "", items->len);
    buf_ch(out, ']');
    out->oom |= items->oom;
    buf_reset(items);
}

static void text_members(struct buf *out, struct openai *o, const struct generation *g)
{
    struct openai_sequence *s = &o->seq[g->index];
    buf_fmt(out, "{\"index\":%u,\"content\":", g->index);
    buf_json_str(out, s->text.p ? s->text.p : "", s->text.len);
    out->oom |= s->text.oom;
    put_list(out, "tokens", &s->ids);
    if (s->logprobs.len)
        put_list(out, "completion_probabilities", &s->logprobs);
    buf_fmt(out, ",\"id_slot\":%u,\"stop\":%s", g->index,
            g->answer.ended || g->enough ? "true" : "false");
}

/* Members of the last event of a stream, and of an answer without streaming. */
static void end_members(struct buf *out, const struct call *c, const struct generation *g)
{
    const struct openai *o = c->state;
    const struct stop_trim *t = &o->seq[g->index].trim;
    const struct ask *q = &o->asks[g->index / o->each];
    const uint32_t predicted = o->only_prompt ? 0 : g->answer.n_tokens;
    buf_str(out, ",\"model\":");
    string(out, o->model);
    buf_fmt(out, ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u", predicted, g->r.n_input);
    settings(out, o, g);
    buf_str(out, ",\"prompt\":");
    buf_json_str(out, q->inputs ? q->inputs : "", q->inputs ? q->n_inputs : 0);
    buf_fmt(out, ",\"has_new_line\":%s,\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":",
            o->seq[g->index].chars ? "true" : "false", stop_type(o, g));
    string(out, t->found ? t->found : "");
    buf_fmt(out, ",\"tokens_cached\":%u", g->r.n_input + predicted);
    openai_timings(out, g, predicted);
}

/* What every event of a stream has but the last. */
static void so_far(struct buf *out, const struct openai *o, const struct generation *g)
{
    buf_fmt(out, ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u", g->answer.n_tokens,
            g->r.n_input);
    openai_told_timings(out, o, g);
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    buf_reset(&o->seq[g->index].text);
    take(o, g, ev);
    buf_str(out, "data: ");
    text_members(out, o, g);
    if (ev->end || g->enough)
        end_members(out, c, g);
    else
        so_far(out, o, g);
    buf_str(out, "}\n\n");
}

static void stream_progress(struct call *c, struct generation *g, const struct gen_event *ev)
{
    struct openai *o = c->state;
    buf_str(&c->out, "data: ");
    text_members(&c->out, o, g);
    buf_fmt(&c->out, ",\"tokens_predicted\":0,\"tokens_evaluated\":%u", g->r.n_input);
    openai_progress(&c->out, o, g, ev);
    buf_str(&c->out, "}\n\n");
}

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    take(c->state, g, ev);
}

static void finish(struct call *c)
{
    struct openai *o = c->state;
    struct buf *out = &c->out;
    buf_str(out, o->llama->list ? "[" : "");
    for (uint32_t i = 0; i < c->n_gen; i++) {
        buf_str(out, i ? "," : "");
        const size_t from = out->len;
        text_members(out, o, &c->gen[i]);
        end_members(out, c, &c->gen[i]);
        buf_ch(out, '}');
        llama_select(out, from, o->llama);
    }
    buf_str(out, o->llama->list ? "]" : "");
    account_headers(c, 0, c->n_gen, false);
}

const struct format llama_object = {.token = collect_token, .finish = finish};
const struct format llama_stream = {.token = stream_token, .progress = stream_progress};
