#include "model-server/engine/embed_media.h"
#include <stdlib.h>
#include <string.h>

int shown_open(struct shown_texts *s, struct pictures *p, const struct model_text *texts,
               const struct text_beside *beside, uint32_t n, struct err *e)
{
    uint32_t any = 0;
    for (uint32_t i = 0; beside && i < n; i++)
        any |= beside[i].n_media;
    if (!any)
        return 0;
    if (!p)
        return err_set(e, ERR_VALIDATION, "this model reads text only");
    if (!(s->media = calloc(n, sizeof(struct media *))))
        return err_nomem(e);
    s->n = n;
    s->alone = pictures_alone(p);
    for (uint32_t i = 0; i < n; i++)
        if (beside[i].n_media && !(s->media[i] = media_new(p, beside[i].media, beside[i].n_media,
                                                           texts[i].ids, texts[i].n, 0, e)))
            return -1;
    return 0;
}

bool shown_alone(const struct shown_texts *s, uint32_t t)
{
    return s->alone && t < s->n && s->media[t];
}

bool shown_covers(const struct shown_texts *s, uint32_t t, uint32_t i)
{
    return t < s->n && s->media[t] && media_has(s->media[t], i);
}

static int reserve(struct shown_texts *s, size_t tokens, struct err *e)
{
    s->given = malloc(tokens * sizeof(*s->given));
    s->axes = malloc(tokens * sizeof(*s->axes));
    s->mutual = malloc(tokens * sizeof(*s->mutual));
    return s->given && s->axes && s->mutual ? 0 : err_nomem(e);
}

/* Of the text's tokens, from entry `at` on. */
static void fill(struct shown_texts *s, const struct media *m, struct model_text *t, size_t at)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const struct media_token k = media_token(m, i);
        s->given[at + i] = k.row;
        s->mutual[at + i] = k.mutual;
        memcpy(s->axes[at + i], k.axes, sizeof(k.axes));
    }
    t->given = s->given + at;
    t->axes = media_has_axes(m) ? (const uint32_t(*)[3])(s->axes + at) : NULL;
    t->mutual = media_is_two_way(m) ? s->mutual + at : NULL;
}

int shown_encode(struct shown_texts *s, struct pictures *p, struct model_text *texts, struct err *e)
{
    size_t tokens = 0;
    uint64_t done;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->media[i])
            continue;
        media_want(s->media[i], 0, texts[i].n);
        tokens += texts[i].n;
    }
    if (!tokens)
        return 0;
    if (pictures_encode(p, 0, &done, e) || reserve(s, tokens, e))
        return -1;
    tokens = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->media[i])
            continue;
        fill(s, s->media[i], &texts[i], tokens);
        tokens += texts[i].n;
    }
    return 0;
}

void shown_close(struct shown_texts *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        media_free(s->media[i]);
    free(s->media), free(s->given), free(s->axes), free(s->mutual);
    *s = (struct shown_texts){0};
}
