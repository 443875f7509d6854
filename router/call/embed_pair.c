/* A query and a document as one text, cut to the limit of the model. */
#include "common/model/pair_form.h"
#include "router/call/embed_impl.h"
#include "router/chat/chat.h"
#include "router/media/media.h"
#include <assert.h>
#include <string.h>

enum { MAX_PARTS = 8 };

struct parts {
    struct tok_part part[MAX_PARTS];
    uint32_t n, document; /* which of them has the document */
};

/* All parts of which the one with the document is cut. */
static int join(const struct encoding *x, struct parts *p, struct embed_text *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += i == p->document ? 0 : p->part[i].n;
    if (embed_fit(x, &p->part[p->document], NULL, n))
        return -1;
    n += p->part[p->document].n;
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, n + (size_t)1);
    if (!ids)
        return err_nomem(x->e);
    *out = (struct embed_text){.ids = ids, .n = n};
    for (uint32_t i = 0; i < p->n; ids += p->part[i++].n)
        memcpy(ids, p->part[i].id, p->part[i].n * sizeof(*ids));
    return 0;
}

/* ---------------------------------------------------------------- forms */

static void fill_in(const struct encoding *x, const struct pair_form *f, char mark,
                    const struct text_input *in, struct buf *out)
{
    if (mark == *PAIR_QUERY)
        buf_add(out, in->text, in->n);
    else if (mark == *PAIR_DOCUMENT)
        buf_add(out, in->second, in->n_second);
    else if (mark == *PAIR_TASK && x->q->instruction)
        buf_fmt(out, "%s%s%s", f->before_task, x->q->instruction, f->after_task);
    else if (mark == *PAIR_TASK)
        buf_str(out, f->task);
    else
        buf_ch(out, mark);
}

/* The part of the form at `text`, up to `end`. */
static int one_part(const struct encoding *x, const struct pair_form *f, const char *text,
                    const char *end, const struct text_input *in, struct tok_part *out)
{
    const struct tokenizer *t = x->c->edge->tokenizer;
    const char *bos = *text == *PAIR_BOS ? tokenizer_special(t, "bos_token") : NULL;
    const int64_t first = bos ? tokenizer_id(t, bos) : -1;
    struct buf b = BUF_INIT;
    for (text += *text == *PAIR_BOS; text < end; text++)
        fill_in(x, f, *text, in, &b);
    int rc = b.oom ? err_nomem(x->e) : embed_ids(x, b.p ? b.p : "", b.len, 0, out);
    buf_free(&b);
    if (rc || first < 0)
        return rc;
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, out->n + (size_t)1);
    if (!ids)
        return err_nomem(x->e);
    *ids = (uint32_t)first;
    memcpy(ids + 1, out->id, out->n * sizeof(*ids));
    *out = (struct tok_part){ids, out->n + 1};
    return 0;
}

static int in_form(const struct encoding *x, const struct pair_form *f, const struct text_input *in,
                   struct embed_text *out)
{
    struct parts p = {0};
    for (const char *text = f->text, *end; text; text = *end ? end + 1 : NULL, p.n++) {
        end = text + strcspn(text, PAIR_PART);
        assert(p.n < MAX_PARTS);
        if (memchr(text, *PAIR_DOCUMENT, (size_t)(end - text)))
            p.document = p.n;
        if (one_part(x, f, text, end, in, &p.part[p.n]))
            return -1;
    }
    return join(x, &p, out);
}

/* ---------------------------------------------------------------- chat templates */

static int rendered(const struct encoding *x, const char *query, const char *document,
                    struct tok_part *out)
{
    const struct edge *g = x->c->edge;
    const char *task = x->q->instruction ? x->q->instruction : sentence_prompt(&g->sentence, NULL);
    struct buf b = BUF_INIT;
    int rc = chat_pair(g->chat, task, &(struct chat_pair_text){query, document, NULL},
                       g->sentence.opens_answer, &b, x->e);
    if (rc == 0)
        rc = b.oom ? err_nomem(x->e)
                   : embed_ids(x, b.p ? b.p : "", b.len, chat_guard(g->chat)->n ? TOK_GUARDED : 0,
                               out);
    buf_free(&b);
    return rc;
}

/* Number of tokens behind the document: the end that it shares with another document's text. */
static int tail(const struct encoding *x, const struct text_input *in, struct tok_part whole,
                uint32_t *out)
{
    struct tok_part other;
    if (rendered(x, in->text, *in->second == 'x' ? "y" : "x", &other))
        return -1;
    uint32_t n = 0;
    while (n < other.n && n < whole.n && whole.id[whole.n - 1 - n] == other.id[other.n - 1 - n])
        n++;
    *out = n;
    return 0;
}

/* As sentence-transformers 5.4 does: a long text is cut before the end that the template writes. */
static int by_template(const struct encoding *x, const struct text_input *in,
                       struct embed_text *out)
{
    struct tok_part whole;
    uint32_t end = 0;
    if (rendered(x, in->text, in->second, &whole) || (x->q->truncate && tail(x, in, whole, &end)))
        return -1;
    struct parts p = {.part = {{whole.id, whole.n - end}, {whole.id + (whole.n - end), end}},
                      .n = 2};
    return join(x, &p, out);
}

/* ---------------------------------------------------------------- images */

/* The whole form as one text. */
static int in_one(const struct encoding *x, const struct pair_form *f, const struct text_input *in,
                  struct buf *out)
{
    const char *bos = tokenizer_special(x->c->edge->tokenizer, "bos_token");
    for (const char *text = f->text; *text; text++)
        if (*text == *PAIR_BOS)
            buf_str(out, bos ? bos : "");
        else if (*text != *PAIR_PART)
            fill_in(x, f, *text, in, out);
    return out->oom ? err_nomem(x->e) : 0;
}

/* Images of the query, and those of the document behind them. */
static int join_images(const struct encoding *x, const struct text_input *in, struct ask *q)
{
    const struct ask *const halves[] = {in->first_shown, in->second_shown};
    const uint32_t n =
        (halves[0] ? halves[0]->n_images : 0) + (halves[1] ? halves[1]->n_images : 0);
    struct ask_image *v = ARENA_NEW(&x->c->arena, struct ask_image, n + (size_t)1);
    if (!v)
        return err_nomem(x->e);
    q->images = v;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; halves[i] && k < halves[i]->n_images; k++)
            v[q->n_images++] = halves[i]->images[k];
    return 0;
}

/* The text of a pair, with markers of its images. A template writes them itself. */
static int with_markers(const struct encoding *x, const struct pair_form *f,
                        const struct text_input *in, struct buf *out)
{
    const struct edge *g = x->c->edge;
    const char *task = x->q->instruction ? x->q->instruction : sentence_prompt(&g->sentence, NULL);
    const struct vision *v = edge_media(g).vision;
    const struct chat_pair_text pair = {in->text, in->second, vision_marker_around(v)};
    if (!chat_pairs(g->chat))
        return in_one(x, f, in, out);
    return chat_pair(g->chat, task, &pair, g->sentence.opens_answer, out, x->e);
}

static int with_images(struct encoding *x, const struct pair_form *f, const struct text_input *in,
                       struct embed_text *out)
{
    struct ask q = {.style = ASK_OPENAI};
    struct text_input pair = *in;
    struct buf b = BUF_INIT;
    if (in->first_shown)
        pair.text = in->first_shown->inputs, pair.n = in->first_shown->n_inputs;
    if (in->second_shown)
        pair.second = in->second_shown->inputs, pair.n_second = in->second_shown->n_inputs;
    buf_reserve(&b, 0);
    int rc = join_images(x, in, &q) || with_markers(x, f, &pair, &b) ? -1 : 0;
    q.inputs = rc == 0 && !b.oom ? arena_strdup(&x->c->arena, b.p, b.len) : NULL;
    q.n_inputs = b.len;
    buf_free(&b);
    if (rc)
        return -1;
    if (!q.inputs)
        return err_nomem(x->e);
    if (chat_pairs(x->c->edge->chat) && chat_guard(x->c->edge->chat)->n) {
        q.guarded = q.inputs;
        q.n_guarded = q.n_inputs;
    }
    return embed_shown(x, &(struct text_input){.shown = &q}, NULL, out);
}

int embed_pair(struct encoding *x, const struct text_input *in, struct embed_text *out)
{
    const struct infer_limits *l = edge_limits(x->c->edge);
    const char *family = x->c->edge->sentence.first_cut ? PAIR_LAYERWISE : l->family;
    const struct pair_form *f = pair_form_of(family, !l->pairs_as_text);
    const bool rendered = chat_pairs(x->c->edge->chat);
    if ((in->first_shown || in->second_shown) && (rendered || f))
        return with_images(x, f, in, out);
    if (in->first_shown || in->second_shown)
        return err_set(x->e, ERR_VALIDATION,
                       "Input validation error: this model compares texts, and no images");
    return rendered ? by_template(x, in, out)
           : f      ? in_form(x, f, in, out)
                    : embed_segments(x, in, out);
}
