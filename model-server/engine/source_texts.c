/* source_texts.c - rows of texts: ids through the encoder beside a decoder. */
#include "common/digest.h"
#include "model-server/engine/pictures_impl.h"
#include <stdlib.h>
#include <string.h>

static int shape(const struct pictures *p, const struct media_spec *s, struct medium_shape *out,
                 struct err *e)
{
    if (!s->n_ids || s->n_ids > p->o.most_ids)
        return err_set(e, ERR_VALIDATION, "a text of %u tokens for an encoder of 1 to %u", s->n_ids,
                       p->o.most_ids);
    *out = (struct medium_shape){.rows = s->n_ids, .tokens = 1};
    return 0;
}

static int read_text(struct pictures *p, const struct media_spec *s, struct medium *m,
                     struct err *e)
{
    const uint32_t vocab = model_info(p->o.model)->vocab;
    for (uint32_t i = 0; i < s->n_ids; i++)
        if (s->ids[i] >= vocab)
            return err_set(e, ERR_VALIDATION, "token id %u is not below the vocabulary size %u",
                           s->ids[i], vocab);
    if (!(m->ids = malloc((s->n_ids + (size_t)1) * sizeof(*m->ids))))
        return err_nomem(e);
    memcpy(m->ids, s->ids, s->n_ids * sizeof(*m->ids));
    if (!m->digest)
        m->digest = digest_bytes(s->ids, s->n_ids * sizeof(*s->ids));
    return 0;
}

static void drop(struct medium *m)
{
    free(m->ids);
    m->ids = NULL;
}

static int begin(struct pictures *p, struct medium *const *m, uint32_t n, struct err *e)
{
    if (!(p->work.texts = calloc(n, sizeof(*p->work.texts))))
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        p->work.texts[i] = (struct text_job){m[i]->ids, m[i]->shape.rows, m[i]->unfinished};
    return text_encoder_begin(p->o.texts, p->work.texts, n, e);
}

static int go_on(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    return text_encoder_go_on(p->o.texts, most, done, e);
}

static bool busy(const struct pictures *p) { return text_encoder_busy(p->o.texts); }

static void stop(struct pictures *p)
{
    text_encoder_stop(p->o.texts);
    free(p->work.texts);
    p->work.texts = NULL;
}

static uint32_t row(const struct pictures *p) { return text_encoder_width(p->o.texts); }
static uint32_t most_rows(const struct pictures *p) { return p->o.most_ids; }

static const float *token(const struct pictures *p)
{
    (void)p;
    return NULL;
}

/* A text is encoded whole: the tokens of the largest step are the most that it may have. */
static int reserve(struct pictures *p, uint32_t tokens, struct err *e)
{
    p->o.most_ids = tokens;
    return text_encoder_reserve(p->o.texts, tokens, e);
}

static uint64_t memory(const struct pictures *p, uint32_t tokens)
{
    return text_encoder_weight_bytes(p->o.texts) + text_encoder_reserve_bytes(p->o.texts, tokens);
}

const struct source_ops source_texts = {.shape = shape,
                                        .read = read_text,
                                        .drop = drop,
                                        .begin = begin,
                                        .go_on = go_on,
                                        .busy = busy,
                                        .stop = stop,
                                        .row = row,
                                        .token = token,
                                        .most_rows = most_rows,
                                        .reserve = reserve,
                                        .memory = memory};
