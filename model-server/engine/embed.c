#include "model-server/engine/embed.h"
#include "model-server/engine/embed_media.h"
#include "model-server/engine/engine_impl.h"
#include "model-server/model/lora/adapters.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVED_TEXTS = 64, TRIAL_TOKENS = 8 };

/* Checked before any rank starts: all ranks see the same texts, so all refuse the same. */
static int check(const struct model_info *m, const struct model_text *texts, uint32_t n,
                 struct err *e)
{
    if (m->task == TASK_GENERATE)
        return err_set(e, ERR_VALIDATION, "this model generates text: it gives no embeddings");
    for (uint32_t i = 0; i < n; i++) {
        if (!texts[i].n)
            return err_set(e, ERR_VALIDATION, "text %u has no tokens", i);
        if (m->max_length && texts[i].n > m->max_length)
            return err_set(e, ERR_VALIDATION, "text %u has %u tokens, this model takes %u", i,
                           texts[i].n, m->max_length);
    }
    return 0;
}

/* Placeholders of images may be outside the vocabulary. */
static int check_texts(const struct model *model, const struct model_text *texts, uint32_t n,
                       const struct shown_texts *shown, struct err *e)
{
    const struct model_info *m = model_info(model);
    for (uint32_t i = 0; i < n; i++) {
        if (model_check_text(model, &texts[i], e))
            return -1;
        for (uint32_t k = 0; k < texts[i].n; k++)
            if (texts[i].ids[k] >= m->vocab && !shown_covers(shown, i, k))
                return err_set(e, ERR_VALIDATION, "token id %u is not below the vocabulary size %u",
                               texts[i].ids[k], m->vocab);
    }
    return 0;
}

/* Unpins those of the first n texts. */
static void unpin(struct engine *g, struct model_text *texts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (texts[i].adapter)
            adapters_unpin(model_adapters(g->o.model), texts[i].adapter);
        texts[i].adapter = 0;
    }
}

/* Loads the adapters of the first texts to the device, as many as find room. Returns how many texts
 * these are; 0: an error. */
static uint32_t pin(struct engine *g, struct model_text *texts, const struct text_beside *beside,
                    uint32_t n, struct err *e)
{
    struct adapters *a = model_adapters(g->o.model);
    for (uint32_t i = 0; beside && i < n; i++) {
        const char *name = beside[i].adapter;
        if (!name || !*name)
            continue;
        const uint32_t number = a ? adapters_find(a, name) : 0;
        const int rc = number ? adapters_pin(a, number, e)
                              : err_set(e, ERR_VALIDATION, "there is no adapter `%.100s`", name);
        if (rc && e->kind == ERR_OVERLOADED && i > 0)
            return i;
        if (rc) {
            unpin(g, texts, i);
            return 0;
        }
        texts[i].adapter = number;
    }
    return n;
}

/* *out has room. The adapters of a batch need not fit into their pool at once. */
static int encode(struct engine *g, struct model_text *texts, const struct text_beside *beside,
                  uint32_t n, bool all, float *out, struct err *e)
{
    const struct model_info *m = model_info(g->o.model);
    for (uint32_t first = 0, some; first < n; first += some) {
        struct model_text *t = texts + first;
        if (!(some = pin(g, t, beside ? beside + first : NULL, n - first, e)))
            return -1;
        assert(some <= n - first);
        const int rc = model_encode(g->o.model, t, some, all, out, e);
        unpin(g, t, some);
        if (rc) {
            engine_note_failure(g);
            return -1;
        }
        for (uint32_t i = 0; out && i < some; i++)
            out += all ? (size_t)model_text_rows(&t[i]) * m->row_width : m->width;
    }
    return 0;
}

/* Texts whose images are decoded. Images with vectors of their own lie between texts. */
static int embed(struct engine *g, struct model_text *texts, const struct text_beside *beside,
                 uint32_t n, bool all, struct shown_texts *shown, float *out, struct err *e)
{
    const uint32_t width = model_info(g->o.model)->width;
    if (shown_encode(shown, g->o.pictures, texts, e)) {
        engine_note_failure(g);
        return -1;
    }
    if (!shown->alone)
        return encode(g, texts, beside, n, all, out, e);
    for (uint32_t i = 0, some; i < n; i += some) {
        float *to = out ? out + (size_t)i * width : NULL;
        for (some = 0; i + some < n && !shown_alone(shown, i + some);)
            some++;
        if (some && encode(g, texts + i, beside + i, some, false, to, e))
            return -1;
        if (!some && to)
            memcpy(to, texts[i].given[0], width * sizeof(*to));
        some += !some;
    }
    return 0;
}

int engine_embed(struct engine *g, struct model_text *texts, const struct text_beside *beside,
                 uint32_t n, bool all, float **out, size_t *floats, struct err *e)
{
    const struct model_info *m = model_info(g->o.model);
    struct shown_texts shown = {0};
    size_t rows = n;
    *out = NULL;
    *floats = 0;
    if (check(m, texts, n, e))
        return -1;
    if (!all && model_task_of_tokens(m->task))
        return err_set(e, ERR_VALIDATION, "this model gives rows of tokens: it pools none");
    for (uint32_t i = 0; all && i < n; i++)
        rows += model_text_rows(&texts[i]) - (size_t)1;
    const size_t size = rows * (all ? m->row_width : m->width);
    /* texts do not say which of their tokens have the experts of pictures */
    int rc = shown_open(&shown, model_info(g->o.model)->sight ? NULL : g->o.pictures, texts, beside,
                        n, e);
    if (rc == 0 && all && shown.alone)
        rc = err_set(e, ERR_VALIDATION, "images have one vector here, and none of tokens");
    if (rc == 0)
        rc = check_texts(g->o.model, texts, n, &shown, e);
    if (rc == 0 && g->o.comm->rank == 0 && !(*out = malloc((size ? size : 1) * sizeof(**out))))
        rc = err_nomem(e);
    if (rc == 0)
        rc = embed(g, texts, beside, n, all, &shown, *out, e);
    shown_close(&shown);
    if (rc == 0) {
        *floats = *out ? size : 0;
        return 0;
    }
    free(*out);
    *out = NULL;
    return -1;
}

int engine_embed_warmup(struct engine *g, struct warmup *w, struct err *e)
{
    static const uint32_t ids[TRIAL_TOKENS];
    const struct model_info *m = model_info(g->o.model);
    const uint32_t most =
        m->max_length && m->max_length < TRIAL_TOKENS ? m->max_length : TRIAL_TOKENS;
    const uint32_t asked = w->max_prefill_tokens ? w->max_prefill_tokens : DEFAULT_PREFILL;
    struct model_text trial = {.ids = ids, .n = most};
    float *out;
    size_t floats;
    if (model_encode_reserve(g->o.model, asked, RESERVED_TEXTS, g->o.kv_dtype, e))
        return err_wrap(e,
                        "Not enough memory to handle %u tokens of texts. You need to decrease "
                        "`--max-batch-prefill-tokens`",
                        asked);
    if (g->o.pictures && pictures_reserve(g->o.pictures, asked, e))
        return err_wrap(e, "the memory that pictures of %u tokens take", asked);
    if (warmup_reserve_adapters(g, w, e))
        return -1;
    if (engine_embed(g, &trial, NULL, 1, model_task_of_tokens(m->task), &out, &floats, e))
        return err_wrap(e, "warm-up");
    free(out);
    w->supported_tokens = asked;
    w->max_total_tokens = m->max_length ? m->max_length : asked;
    if (!w->max_input_tokens || w->max_input_tokens > w->max_total_tokens)
        w->max_input_tokens = w->max_total_tokens;
    return 0;
}
