#include "router/api/tgi/tgi.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/call/accounting.h"
#include "router/generate/constrain.h"
#include <string.h>

struct tgi_sequence { /* JSON lists without their brackets */
    struct buf prefill, tokens, top_tokens;
    uint32_t index;
};

/* ---------------------------------------------------------------- requests */

static void read_parameters(struct body *b, struct object p, struct tgi *t)
{
    struct ask *q = &t->ask;
    q->best_of = body_u64(b, p, "best_of");
    body_params(b, p, true, q);
    q->do_sample = body_bool(b, p, "do_sample", false);
    q->max_new_tokens = body_u32(b, p, "max_new_tokens");
    t->full_text_given = json_get(p.json, "return_full_text") != NULL;
    t->return_full_text = body_opt_bool(b, p, "return_full_text", false);
    q->stop = body_strings(b, p, "stop", false, false, &q->n_stop);
    q->truncate = body_u64(b, p, "truncate");
    q->watermark = body_bool(b, p, "watermark", false);
    t->details = body_bool(b, p, "details", false);
    q->decoder_input_details = body_bool(b, p, "decoder_input_details", false);
    q->seed = body_u64(b, p, "seed");
    q->top_n_tokens = body_u32(b, p, "top_n_tokens");
    constrain_grammar(b, p, "grammar", q);
    q->adapter_id = body_str(b, p, "adapter_id", false);
    body_ending(b, p, "min_new_tokens", q);
    body_bias(b, p, "logit_bias", q);
    body_languages(b, p, q);
    q->priority = body_i32(b, p, "priority");
}

int tgi_read(struct body *b, struct object o, struct tgi *t)
{
    bool given;
    struct ask *q = &t->ask;
    q->inputs = body_str(b, o, "inputs", true);
    struct object p = body_object(b, o, "parameters", &given);
    read_parameters(b, p, t);
    body_unread(b, p);
    if (b->failed)
        return -1;
    q->do_sample |= !given; /* without `parameters` TGI samples; an empty object is greedy */
    q->sampling_implied = ask_cuts(q);
    if (!(q->inputs = body_bytes(b->arena, q->inputs, &q->n_inputs)))
        return err_nomem(b->e);
    q->n_chars = utf8_count(q->inputs, q->n_inputs);
    q->add_special_tokens = true;
    q->inline_images = true;
    t->details |= q->decoder_input_details;
    return 0;
}

struct tgi *tgi_parse(struct call *c, bool with_stream, struct err *e)
{
    struct tgi *t = ARENA_NEW(&c->arena, struct tgi, 1);
    struct body b;
    if (!t) {
        err_nomem(e);
        return NULL;
    }
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return NULL;
    struct object root = body_root(&b);
    int rc = tgi_read(&b, root, t);
    if (with_stream && rc == 0)
        t->stream = body_bool(&b, root, "stream", false);
    call_unread(c, &b);
    return b.failed ? NULL : t;
}

/* ---------------------------------------------------------------- answers */

/* {"id":1,"text":"x","logprob":-0.5[,"special":false]} */
static void tgi_token(struct buf *out, const struct gen_token *t, bool special)
{
    buf_str(out, "{\"id\":");
    buf_u64(out, t->id);
    buf_str(out, ",\"text\":");
    buf_json_str(out, t->text, t->text_len);
    buf_str(out, ",\"logprob\":");
    buf_json_f32(out, t->logprob);
    if (special)
        buf_str(out, t->special ? ",\"special\":true" : ",\"special\":false");
    buf_ch(out, '}');
}

static void top_tokens(struct buf *out, const struct gen_event *ev)
{
    buf_ch(out, '[');
    for (uint32_t i = 0; i < ev->n_top; i++) {
        if (i)
            buf_ch(out, ',');
        tgi_token(out, &ev->top[i], true);
    }
    buf_ch(out, ']');
}

static void generated_text(struct buf *out, const struct tgi *t, const struct answer *a)
{
    struct buf whole = BUF_INIT;
    if (!t->return_full_text) {
        buf_json_str(out, a->text.p ? a->text.p : "", a->text.len);
        return;
    }
    buf_add(&whole, t->ask.inputs, t->ask.n_inputs);
    buf_add(&whole, a->text.p ? a->text.p : "", a->text.len);
    buf_json_str(out, whole.p, whole.len);
    out->oom |= whole.oom;
    buf_free(&whole);
}

static void reason(struct buf *out, const struct generation *g)
{
    buf_fmt(out, "\"finish_reason\":\"%s\",\"generated_tokens\":%u,\"seed\":",
            gen_finish_name(g->answer.finish), g->answer.generated_tokens);
    if (g->r.params.do_sample)
        buf_u64(out, g->r.params.seed);
    else
        buf_str(out, "null");
}

static void stream_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    const struct tgi *t = c->state;
    struct buf *out = &c->out;
    buf_str(out, "data: {\"index\":");
    buf_u64(out, ++t->seq->index);
    buf_str(out, ",\"token\":");
    tgi_token(out, &ev->token, true);
    if (ev->n_top) {
        buf_str(out, ",\"top_tokens\":");
        top_tokens(out, ev);
    }
    buf_str(out, ",\"generated_text\":");
    if (ev->end)
        generated_text(out, t, &g->answer);
    else
        buf_str(out, "null");
    buf_str(out, ",\"details\":");
    if (ev->end && t->details) {
        buf_ch(out, '{');
        reason(out, g);
        buf_fmt(out, ",\"input_length\":%u}", g->r.n_input);
    } else {
        buf_str(out, "null");
    }
    buf_str(out, "}\n\n");
}

static void comma(struct buf *b)
{
    if (b->len)
        buf_ch(b, ',');
}

static void collect_prefill(struct call *c, struct generation *g, const struct gen_event *ev)
{
    const struct tgi *t = c->state;
    struct buf *out = &t->seq[g->index].prefill;
    for (uint32_t i = 0; t->ask.decoder_input_details && i < ev->n_prefill; i++) {
        comma(out);
        tgi_token(out, &ev->prefill[i], false);
    }
}

static void collect_token(struct call *c, struct generation *g, const struct gen_event *ev)
{
    const struct tgi *t = c->state;
    struct tgi_sequence *s = &t->seq[g->index];
    if (!t->details)
        return;
    comma(&s->tokens);
    tgi_token(&s->tokens, &ev->token, true);
    if (g->r.params.top_n_tokens) {
        comma(&s->top_tokens);
        top_tokens(&s->top_tokens, ev);
    }
}

static void list(struct buf *out, const char *name, const struct buf *items)
{
    buf_fmt(out, ",\"%s\":[", name);
    buf_add(out, items->p ? items->p : "", items->len);
    buf_ch(out, ']');
    out->oom |= items->oom;
}

static void best_of_sequence(struct buf *out, const struct tgi *t, const struct generation *g)
{
    const struct tgi_sequence *s = &t->seq[g->index];
    buf_str(out, "{\"generated_text\":");
    generated_text(out, t, &g->answer);
    buf_ch(out, ',');
    reason(out, g);
    list(out, "prefill", &s->prefill);
    list(out, "tokens", &s->tokens);
    if (s->top_tokens.len)
        list(out, "top_tokens", &s->top_tokens);
    buf_ch(out, '}');
}

static const struct answer *answer_at(void *gens, uint32_t i)
{
    return &((struct generation *)gens)[i].answer;
}

static void finish(struct call *c)
{
    const struct tgi *t = c->state;
    struct buf *out = &c->out;
    uint32_t best = answer_best(answer_at, c->gen, c->n_gen);
    const struct tgi_sequence *s = &t->seq[best];
    buf_str(out, "{\"generated_text\":");
    generated_text(out, t, &c->gen[best].answer);
    if (t->details) {
        buf_str(out, ",\"details\":{");
        reason(out, &c->gen[best]);
        list(out, "prefill", &s->prefill);
        list(out, "tokens", &s->tokens);
        for (uint32_t i = 0, k = 0; c->n_gen > 1 && i < c->n_gen; i++) {
            if (i == best)
                continue;
            buf_str(out, k++ ? "," : ",\"best_of_sequences\":[");
            best_of_sequence(out, t, &c->gen[i]);
        }
        if (c->n_gen > 1)
            buf_ch(out, ']');
        if (s->top_tokens.len)
            list(out, "top_tokens", &s->top_tokens);
        buf_ch(out, '}');
    }
    buf_ch(out, '}');
    account_headers(c, best, 1, true);
}

static void finish_array(struct call *c) /* POST / answers with a list of one */
{
    struct buf *out = &c->out;
    buf_ch(out, '[');
    finish(c);
    buf_ch(out, ']');
}

static const struct format as_stream = {.token = stream_token};
static const struct format as_object = {collect_prefill, collect_token, finish};
static const struct format as_list = {collect_prefill, collect_token, finish_array};

/* ---------------------------------------------------------------- generations */

static int check_best_of(const struct call *c, const struct tgi *t, bool stream, struct err *e)
{
    const struct ask *q = &t->ask;
    uint32_t max = c->edge->config->max_best_of;
    const char *what = NULL;
    if (stream && q->best_of.set && q->best_of.v != 1)
        what = "`best_of` != 1 is not supported when streaming tokens";
    else if (stream && q->decoder_input_details)
        what = "`decoder_input_details` == true is not supported when streaming tokens";
    else if (!stream && q->best_of.set && q->best_of.v > 1 && max == 1)
        what = "`best_of` != 1 is not allowed for this endpoint";
    if (what)
        return err_set(e, ERR_VALIDATION, "Input validation error: %s", what);
    if (!stream && q->best_of.set && q->best_of.v > max)
        return err_set(e, ERR_VALIDATION,
                       "Input validation error: `best_of` must be > 0 and <= %u. Given: %llu", max,
                       (unsigned long long)q->best_of.v);
    return 0;
}

static void free_sequences(void *arg)
{
    struct call *c = arg;
    struct tgi *t = c->state;
    for (uint32_t i = 0; i < c->n_gen; i++) {
        buf_free(&t->seq[i].prefill);
        buf_free(&t->seq[i].tokens);
        buf_free(&t->seq[i].top_tokens);
    }
}

int tgi_generate(struct call *c, struct tgi *t, bool stream, bool as_array, struct err *e)
{
    uint32_t n = t->ask.best_of.set && t->ask.best_of.v > 1 ? (uint32_t)t->ask.best_of.v : 1;
    c->state = t;
    c->stream = stream;
    c->format = stream ? &as_stream : as_array ? &as_list : &as_object;
    c->prompt_chars = t->ask.n_chars; /* also for the headers of a refusal */
    if (check_best_of(c, t, stream, e) != 0)
        return -1;
    t->seq = ARENA_NEW(&c->arena, struct tgi_sequence, n);
    if (!t->seq || arena_defer(&c->arena, free_sequences, c) != 0)
        return err_nomem(e);
    return call_generate(c, &t->ask, 1, n, e);
}
