/* Words in place of masks: the tokens with the greatest probabilities, as transformers' pipeline
 * gives them. */
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include <string.h>

enum { USUAL_TOP = 5, MOST_TARGETS = 1024 };

struct masked {
    const struct text_input *in; /* [n] one for each mask, which `skip` is the place of */
    uint32_t *masks;             /* [n_texts] how many a text has */
    uint32_t n_texts, top;
    uint32_t *targets, n_targets; /* ids, without repeats; 0: all tokens */
    bool batch;
    int64_t pad; /* the token that no sequence has; -1: none */
};

/* ---------------------------------------------------------------- the answer */

static void decoded(struct buf *out, const struct call *c, const uint32_t *ids, uint32_t n,
                    bool skip_special)
{
    struct buf text = BUF_INIT;
    tokenizer_decode(c->edge->tokenizer, ids, n, skip_special, &text);
    buf_json_str(out, text.p ? text.p : "", text.len);
    out->oom |= text.oom;
    buf_free(&text);
}

/* The text of mask `in` with `token` in its place. `ids`: room for its ids. Padding is left out, as
 * the pipeline does, also where it is the token. */
static void sequence(struct call *c, const struct masked *q, const struct text_input *in,
                     uint32_t token, bool skip_special, uint32_t *ids)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_ids; i++) {
        const uint32_t id = i == in->skip ? token : in->ids[i];
        if (id != q->pad)
            ids[n++] = id;
    }
    decoded(&c->out, c, ids, n, skip_special);
}

/* The best tokens for mask `i`. */
static int one(struct call *c, const struct masked *q, uint32_t i, bool alone, struct err *e)
{
    const struct text_input *in = &q->in[i];
    const uint32_t width = c->texts->job.width, n = q->n_targets ? q->n_targets : width;
    float *x = c->texts->job.values + (size_t)i * width;
    float *of = ARENA_NEW(&c->arena, float, n);
    uint32_t *ids = ARENA_NEW(&c->arena, uint32_t, in->n_ids);
    if (!of || !ids)
        return err_nomem(e);
    texts_probabilities(x, width, x);
    for (uint32_t k = 0; k < n; k++)
        of[k] = x[q->n_targets ? q->targets[k] : k];
    const uint32_t *order = texts_ranking(c, of, n);
    if (!order)
        return err_nomem(e);
    buf_ch(&c->out, '[');
    for (uint32_t k = 0; k < n && k < q->top; k++) {
        const uint32_t token = q->n_targets ? q->targets[order[k]] : order[k];
        buf_str(&c->out, k ? ",{\"score\":" : "{\"score\":");
        buf_json_f32(&c->out, of[order[k]]);
        buf_fmt(&c->out, ",\"token\":%u,\"token_str\":", token);
        decoded(&c->out, c, &token, 1, false);
        buf_str(&c->out, ",\"sequence\":");
        sequence(c, q, in, token, alone, ids);
        buf_ch(&c->out, '}');
    }
    buf_ch(&c->out, ']');
    return 0;
}

/* A text with several masks has a list for each. */
static int render(struct call *c, struct err *e)
{
    const struct masked *q = c->texts->state;
    buf_str(&c->out, q->batch ? "[" : "");
    for (uint32_t t = 0, i = 0; t < q->n_texts; t++) {
        const bool alone = q->masks[t] == 1;
        buf_str(&c->out, t ? "," : "");
        buf_str(&c->out, alone ? "" : "[");
        for (uint32_t k = 0; k < q->masks[t]; k++) {
            buf_str(&c->out, k ? "," : "");
            if (one(c, q, i++, alone, e))
                return -1;
        }
        buf_str(&c->out, alone ? "" : "]");
    }
    buf_str(&c->out, q->batch ? "]" : "");
    return c->out.oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- the request */

static void add_target(struct masked *q, uint32_t id)
{
    for (uint32_t i = 0; i < q->n_targets; i++)
        if (q->targets[i] == id)
            return;
    q->targets[q->n_targets++] = id;
}

/* Tokens of the vocabulary, or the first tokens of other words. */
static int read_targets(struct call *c, struct body *b, struct object o, struct masked *q,
                        struct err *e)
{
    const struct tokenizer *t = c->edge->tokenizer;
    uint32_t n;
    const char *const *words = body_strings(b, o, "targets", true, true, &n);
    if (b->failed || !json_get(o.json, "targets"))
        return 0;
    if (n > MOST_TARGETS)
        body_fail(b, o, "targets", "`targets`: at most %d are allowed", MOST_TARGETS);
    else if (!(q->targets = ARENA_NEW(&c->arena, uint32_t, n + (size_t)1)))
        return err_nomem(e);
    for (uint32_t i = 0; !b->failed && i < n; i++) {
        struct tok_ids ids = {0};
        const int64_t id = tokenizer_id(t, words[i]);
        const int rc =
            id < 0 ? tokenizer_encode(t, words[i], strlen(words[i]), 0, c->scratch, &ids, e) : 0;
        if (rc == 0 && (id >= 0 || ids.n))
            add_target(q, id >= 0 ? (uint32_t)id : ids.id[0]);
        tok_ids_free(&ids);
        if (rc)
            return -1;
    }
    if (!b->failed && !q->n_targets)
        body_fail(b, o, "targets", "`targets`: none of them is a token");
    return 0;
}

/* Texts with one input for each mask. */
static int find_masks(struct call *c, const struct text_input *texts, struct masked *q,
                      struct texts_ask *ask, struct err *e)
{
    const struct tokenizer *t = c->edge->tokenizer;
    const char *word = tokenizer_special(t, "mask_token");
    const int64_t mask = word ? tokenizer_id(t, word) : -1;
    const uint32_t most = texts_most(c);
    struct text_input *to = ARENA_NEW(&c->arena, struct text_input, most);
    if (mask < 0)
        return err_set(e, ERR_VALIDATION, "the tokenizer has no `mask_token`");
    if (!to || !(q->masks = ARENA_NEW(&c->arena, uint32_t, q->n_texts)))
        return err_nomem(e);
    const char *pad = tokenizer_special(t, "pad_token");
    q->pad = pad ? tokenizer_id(t, pad) : -1;
    q->in = ask->in = to;
    for (uint32_t i = 0; i < q->n_texts; i++) {
        struct text_windows w;
        const struct text_windows_ask one = {
            .text = texts[i].text, .n = texts[i].n, .shared = WINDOWS_WHOLE};
        if (texts_windows(c, &one, &w, e))
            return -1;
        q->masks[i] = 0;
        for (uint32_t k = 0; k < w.in->n_ids; k++) {
            if (w.in->ids[k] != (uint32_t)mask)
                continue;
            if (texts_count(c, ask->n + 1, most, e))
                return -1;
            to[ask->n] = *w.in;
            to[ask->n++].skip = k;
            q->masks[i]++;
        }
        if (!q->masks[i])
            return err_set(e, ERR_VALIDATION, "no mask (`%s`) in the text", word);
    }
    return 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct masked *q = state;
    bool given;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    const struct text_input *in = body_texts(b, body_root(b), "inputs", &q->n_texts, &q->batch);
    q->top = hf_positive(b, o, "top_k", USUAL_TOP);
    hf_only_texts(b, in, q->n_texts);
    if (read_targets(c, b, o, q, b->e) || b->failed ||
        texts_count(c, q->n_texts, texts_most(c), b->e) || find_masks(c, in, q, ask, b->e))
        return texts_failed(b);
    return ask->n;
}

const struct texts_row row_hf_fill = {.tasks = 1u << TASK_FILL_MASK,
                                      .state = sizeof(struct masked),
                                      .ask = {.plain = true},
                                      .read = read_options,
                                      .render = render};
