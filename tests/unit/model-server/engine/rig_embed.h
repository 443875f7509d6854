/* rig_embed.h - the rig's model embeds nothing: no test of the scheduler's steps does. */
#ifndef TEST_ENGINE_RIG_EMBED_H
#define TEST_ENGINE_RIG_EMBED_H
#include "model-server/engine/embed_media.h"

int model_encode(struct model *m, const struct model_text *texts, uint32_t n, bool all, float *out,
                 struct err *e)
{
    (void)m, (void)texts, (void)n, (void)all, (void)out;
    return err_set(e, ERR_SYSTEM, "the rig's model does not embed");
}
int model_check_text(const struct model *m, const struct model_text *t, struct err *e)
{
    (void)m, (void)t, (void)e;
    return 0;
}
int model_encode_reserve(struct model *m, uint32_t tokens, uint32_t texts, enum kv_dtype kv_dtype,
                         struct err *e)
{
    (void)m, (void)tokens, (void)texts, (void)kv_dtype, (void)e;
    return 0;
}

int shown_open(struct shown_texts *s, struct pictures *p, const struct model_text *texts,
               const struct text_beside *beside, uint32_t n, struct err *e)
{
    (void)s, (void)p, (void)texts, (void)beside, (void)n, (void)e;
    return 0;
}
bool shown_covers(const struct shown_texts *s, uint32_t t, uint32_t i)
{
    return (void)s, (void)t, (void)i, false;
}
bool shown_alone(const struct shown_texts *s, uint32_t t) { return (void)s, (void)t, false; }
int shown_encode(struct shown_texts *s, struct pictures *p, struct model_text *texts, struct err *e)
{
    (void)s, (void)p, (void)texts, (void)e;
    return 0;
}
void shown_close(struct shown_texts *s) { (void)s; }
#endif
