#include "model-server/model/text/encode.h"
#include "model-server/model/lora/adapters.h"
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

static uint32_t blocks_of(uint32_t tokens) { return (tokens + BLOCK - 1) / BLOCK; }

/* ---------------------------------------------------------------- memory */

static void free_memory(struct encoder *c)
{
    free(c->ids), free(c->pos), free(c->slots), free(c->blocks), free(c->out_rows);
    free(c->spans), free(c->work), free(c->logits);
    c->ids = c->pos = c->slots = c->blocks = c->out_rows = NULL;
    c->spans = NULL;
    c->work = c->logits = NULL;
    c->cap_tokens = c->cap_texts = 0;
}

static void free_images(struct encoder *c)
{
    free(c->given), free(c->axes), free(c->mutual);
    c->given = NULL;
    c->axes = NULL;
    c->mutual = NULL;
    c->cap_images = 0;
}

void encoder_free(struct encoder *c)
{
    free_memory(c);
    free_images(c);
    free(c->rows);
    text_head_free(&c->head);
    encode_source_free(&c->source);
    *c = (struct encoder){0};
}

int encoder_reserve(struct encoder *c, uint32_t max_tokens, uint32_t max_texts, struct err *e)
{
    const uint32_t tokens = max_tokens > c->cap_tokens ? max_tokens : c->cap_tokens;
    const uint32_t texts = max_texts > c->cap_texts ? max_texts : c->cap_texts;
    if (decoder_kv_reserve(c->d, blocks_of(tokens) + texts, BLOCK, c->kv_dtype, &c->n_blocks, e))
        return -1;
    if (tokens == c->cap_tokens && texts == c->cap_texts)
        return 0;
    free_memory(c);
    c->ids = malloc(tokens * sizeof(*c->ids));
    c->pos = malloc(tokens * sizeof(*c->pos));
    c->slots = malloc(tokens * sizeof(*c->slots));
    c->blocks = malloc((blocks_of(tokens) + (size_t)texts) * sizeof(*c->blocks));
    c->out_rows = malloc((tokens > texts ? tokens : texts) * sizeof(*c->out_rows));
    c->spans = malloc(texts * sizeof(*c->spans));
    c->work = malloc((text_head_work(&c->head) + c->head.width) * sizeof(*c->work));
    const bool sums = c->head.sparse && c->head.sparse != SPARSE_LEXICAL;
    c->logits =
        sums ? malloc((size_t)DECODER_LOGIT_ROWS * c->head.width * sizeof(*c->logits)) : NULL;
    if (!c->ids || !c->pos || !c->slots || !c->blocks || !c->out_rows || !c->spans || !c->work ||
        (sums && !c->logits))
        return err_nomem(e);
    c->cap_tokens = tokens;
    c->cap_texts = texts;
    for (uint32_t i = 0; i < blocks_of(tokens) + texts; i++)
        c->blocks[i] = i;
    return 0;
}

static int reserve_rows(struct encoder *c, size_t floats, struct err *e)
{
    if (floats <= c->cap_rows)
        return 0;
    free(c->rows);
    c->cap_rows = 0;
    if (!(c->rows = malloc(floats * sizeof(*c->rows))))
        return err_nomem(e);
    c->cap_rows = floats;
    return 0;
}

static int reserve_images(struct encoder *c, uint32_t tokens, struct err *e)
{
    if (tokens <= c->cap_images)
        return 0;
    free_images(c);
    c->given = malloc(tokens * sizeof(*c->given));
    c->axes = malloc(tokens * sizeof(*c->axes));
    c->mutual = malloc(tokens * sizeof(*c->mutual));
    if (!c->given || !c->axes || !c->mutual)
        return err_nomem(e);
    c->cap_images = tokens;
    return 0;
}

/* ---------------------------------------------------------------- a pass */

/* Number of texts in a pass: as many as fit, at least one. */
static uint32_t pass_texts(const struct model_text *texts, uint32_t n, uint32_t most,
                           uint32_t *tokens)
{
    uint32_t i = 1;
    for (*tokens = texts[0].n; i < n && texts[i].n <= most && *tokens <= most - texts[i].n; i++)
        *tokens += texts[i].n;
    return i;
}

/* Token i of segment t uses row i of the t-th position table. A decoder that reads a text behind
 * its encoder begins with its start token, and has the text's last one as what comes next. */
static int place_text(struct encoder *c, const struct model_text *t, uint32_t at, struct err *e)
{
    const struct decoder_spec *s = &c->d->spec;
    const uint32_t rows = spec_position_rows(s);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t type = t->types && s->token_types > 1 ? t->types[i] : 0;
        if (s->first_type_only && t->types && t->types[i])
            return err_set(e, ERR_VALIDATION,
                           "pairs of texts: this family is served with one text");
        if (s->refuses_id && t->ids[i] == s->refused_id)
            return err_set(e, ERR_VALIDATION, "token %u: this family is served without masks",
                           s->refused_id);
        if (type >= (s->token_types ? s->token_types : 1))
            return err_set(e, ERR_VALIDATION, "token type %u: this model has %u", type,
                           s->token_types);
        c->ids[at + i] = !c->source.encoder ? t->ids[i] : i ? t->ids[i - 1] : s->start;
        if (t->given && t->given[i]) /* a placeholder may be outside the vocabulary */
            c->ids[at + i] = 0;
        c->pos[at + i] = i + type * rows;
    }
    return 0;
}

/* The keys of token i of a text, of which the last ones are attended to by none. */
static struct mutual attended(const struct encoder *c, const struct model_text *t, uint32_t i)
{
    const bool usual = !t->attended || (!c->d->spec.both_ways && i < t->attended);
    return usual ? (struct mutual){0, 0} : (struct mutual){0, t->attended};
}

/* Values and keys that tokens of a text do not have from their ids alone: of images, and of tokens
 * that none attends to. Once one text of a pass has such, all say theirs. */
static void place_views(struct encoder *c, const struct model_text *texts, uint32_t n,
                        struct ragged *b)
{
    for (uint32_t k = 0, at = 0; k < n; k++) {
        const struct model_text *t = &texts[k];
        for (uint32_t i = 0; i < t->n; i++, at++) {
            const uint32_t p = c->pos[at];
            c->given[at] = t->given ? t->given[i] : NULL;
            c->mutual[at] = t->mutual ? t->mutual[i] : attended(c, t, i);
            for (int a = 0; a < 3; a++)
                c->axes[at][a] = t->axes ? t->axes[i][a] : p;
        }
        b->given = t->given ? c->given : b->given;
        b->axes = t->axes ? (const uint32_t(*)[3])c->axes : b->axes;
        b->mutual = t->mutual || t->attended ? c->mutual : b->mutual;
    }
}

static bool any_views(const struct model_text *texts, uint32_t n)
{
    while (n > 0 && !texts[n - 1].given && !texts[n - 1].attended)
        n--;
    return n > 0;
}

int encoder_check(const struct encoder *c, const struct model_text *t, struct err *e)
{
    const struct decoder_spec *s = &c->d->spec;
    uint32_t most = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].window && s->layers[i].window < most)
            most = s->layers[i].window;
    for (uint32_t i = 0; i < t->n_rows; i++)
        if (t->rows[i] >= t->n || (i && t->rows[i] <= t->rows[i - 1]))
            return err_set(e, ERR_VALIDATION, "row %u of a text of %u tokens", t->rows[i], t->n);
    const bool takes = s->layers[0].mutual == MUTUAL_ALONE && t->n <= most;
    if (!t->attended || (takes && t->attended < t->n))
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "%u tokens, of which the last %u are attended to by none: not of this model",
                   t->n, t->attended < t->n ? t->n - t->attended : 0);
}

static int fill(struct encoder *c, const struct model_text *texts, uint32_t n, unsigned row,
                struct ragged *b, struct err *e)
{
    const struct decoder_spec *s = &c->d->spec;
    uint32_t at = 0, block = 0;
    for (uint32_t i = 0; i < n; at += texts[i++].n) {
        const struct model_text *t = &texts[i];
        if (!t->n)
            return err_set(e, ERR_VALIDATION, "a text without tokens");
        if (s->learned_positions && t->n > s->max_positions)
            return err_set(e, ERR_VALIDATION, "%u tokens: this model has %u positions", t->n,
                           s->max_positions);
        if (place_text(c, t, at, e))
            return -1;
        for (uint32_t k = 0; k < t->n; k++)
            c->slots[at + k] = block * BLOCK + k;
        c->spans[i] = (struct span){.first = at,
                                    .n = t->n,
                                    .kv_len = t->n,
                                    .blocks = c->blocks + block,
                                    .seq_len = t->n,
                                    .adapter = t->adapter};
        c->out_rows[i] = at + (row == POOL_LAST ? t->n - 1 : t->skip < t->n ? t->skip : 0);
        block += blocks_of(t->n);
    }
    *b = (struct ragged){.n_tokens = at,
                         .n_spans = n,
                         .n_out = row ? n : 0,
                         .ids = c->ids,
                         .pos = c->pos,
                         .slots = c->slots,
                         .spans = c->spans,
                         .out_rows = c->out_rows};
    if (c->source.encoder)
        encode_source_show(&c->source, texts, n, b, c->spans);
    if (any_views(texts, n)) {
        if (reserve_images(c, at, e))
            return -1;
        place_views(c, texts, n, b);
    }
    return 0;
}

/* The rows of tokens that are asked for, if they are not all. Returns how many. */
static uint32_t choose_rows(struct encoder *c, const struct model_text *texts, uint32_t n,
                            struct ragged *b)
{
    uint32_t all = 0, some = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        all += model_text_rows(&texts[i]);
    for (uint32_t i = 0; i < n && all < b->n_tokens; at += texts[i++].n)
        for (uint32_t k = 0; k < model_text_rows(&texts[i]); k++)
            c->out_rows[some++] = at + (texts[i].rows ? texts[i].rows[k] : k);
    b->n_out = some;
    return all;
}

/* Pooled rows of a pass from its hidden states. */
static void pool_texts(struct encoder *c, const struct model_text *texts, uint32_t n, unsigned row,
                       float *out)
{
    const uint32_t hidden = c->d->spec.hidden;
    const float *x = c->rows;
    for (uint32_t i = 0; i < n; i++) {
        text_head_run(&c->head, x, texts[i].n, texts[i].skip, out + (size_t)i * c->head.width,
                      c->work);
        x += (size_t)hidden * (row ? 1 : texts[i].n);
    }
}

/* Where a pass is in its texts. */
struct sparse_pass {
    const struct encoder *c;
    const struct model_text *text; /* the current one */
    uint32_t taken;                /* of its tokens */
    float *out;
};

static void take_logits(void *arg, const float *logits, uint32_t first, uint32_t n)
{
    struct sparse_pass *p = arg;
    const struct text_head *h = &p->c->head;
    (void)first;
    for (uint32_t i = 0; i < n; i++) {
        text_head_add_logits(h, logits + (size_t)i * h->width, p->out);
        if (h->sparse != SPARSE_FILL && ++p->taken < p->text->n)
            continue;
        text_head_end_logits(h, p->out);
        p->text++;
        p->taken = 0;
        p->out += h->width;
    }
}

/* out NULL: another rank has the result. */
static int lexical_pass(struct encoder *c, const struct model_text *texts, uint32_t n,
                        uint32_t tokens, float *out, struct err *e)
{
    const struct text_head *h = &c->head;
    struct ragged b;
    if (encoder_reserve(c, tokens, n, e) ||
        (out && reserve_rows(c, (size_t)tokens * h->hidden, e)) || fill(c, texts, n, 0, &b, e) ||
        decoder_encode(c->d, &b, out ? c->rows : NULL, NULL, e))
        return -1;
    const float *row = c->rows;
    for (uint32_t i = 0; out && i < n; row += (size_t)texts[i++].n * h->hidden)
        text_head_lexical(h, row, texts[i].ids, texts[i].n, out + (size_t)i * h->width);
    return 0;
}

static int sparse_pass(struct encoder *c, const struct model_text *texts, uint32_t n,
                       uint32_t tokens, float *out, struct err *e)
{
    struct sparse_pass p = {.c = c, .text = texts, .out = out};
    struct ragged b;
    if (c->head.sparse == SPARSE_LEXICAL)
        return lexical_pass(c, texts, n, tokens, out, e);
    const unsigned row = c->head.sparse == SPARSE_FILL ? POOL_CLS : 0; /* behind text.skip */
    if (encoder_reserve(c, tokens, n, e) || fill(c, texts, n, row, &b, e))
        return -1;
    if (out)
        memset(out, 0, (size_t)n * c->head.width * sizeof(*out));
    return decoder_encode_logits(
        c->d, &b, &(struct logit_reader){take_logits, &p, out ? c->logits : NULL}, e);
}

/* What adapters add to the rows of their texts: out [rows][row_width] of the pass. */
static void add_heads(const struct encoder *c, const struct model_text *texts, uint32_t n,
                      float *out)
{
    const float *x = c->rows;
    for (uint32_t i = 0; c->d->adapters && i < n; i++) {
        const uint32_t rows = model_text_rows(&texts[i]);
        const struct lora_head *h =
            texts[i].adapter ? adapters_head(c->d->adapters, texts[i].adapter) : NULL;
        if (h)
            lora_head_add(h, x, rows, out);
        x += (size_t)rows * c->head.hidden;
        out += (size_t)rows * c->head.row_width;
    }
}

static int pass(struct encoder *c, const struct model_text *texts, uint32_t n, uint32_t tokens,
                bool all, float *out, struct err *e)
{
    const uint32_t hidden = c->d->spec.hidden;
    const unsigned row = all ? 0 : text_head_row(&c->head);
    const bool direct = !out || (all && !c->head.row_stages); /* hidden states are the result */
    struct ragged b;
    uint32_t rows = tokens;
    if (encoder_reserve(c, tokens, n, e) ||
        (c->source.encoder && encode_source_run(&c->source, c->d, texts, n, c->kv_dtype, e)) ||
        (!direct && reserve_rows(c, (size_t)(row ? n : tokens) * hidden, e)) ||
        fill(c, texts, n, row, &b, e))
        return -1;
    if (!row && all)
        rows = choose_rows(c, texts, n, &b);
    if (decoder_encode(c->d, &b, direct ? out : c->rows, NULL, e))
        return -1;
    if (!direct && all) {
        text_head_tokens(&c->head, c->rows, rows, out, c->work);
        add_heads(c, texts, n, out);
    } else if (!direct) {
        pool_texts(c, texts, n, row, out);
    }
    return 0;
}

int encoder_run(struct encoder *c, const struct model_text *texts, uint32_t n, bool all, float *out,
                struct err *e)
{
    const uint32_t pass_most = decoder_pass_tokens(c->d);
    const uint32_t most = c->source.encoder && pass_most > SOURCE_PASS ? SOURCE_PASS : pass_most;
    for (uint32_t i = 0, tokens, some; i < n; i += some) {
        some = pass_texts(texts + i, n - i, most, &tokens);
        if (c->head.sparse && !all ? sparse_pass(c, texts + i, some, tokens, out, e)
                                   : pass(c, texts + i, some, tokens, all, out, e))
            return -1;
        for (uint32_t k = i; out && k < i + some; k++)
            out += all ? (size_t)model_text_rows(&texts[k]) * c->head.row_width : c->head.width;
    }
    return 0;
}
