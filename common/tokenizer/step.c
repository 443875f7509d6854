#include "common/tokenizer/step.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

void steps_free(struct steps *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        regex_free(s->v[i].regex);
        charsmap_free(s->v[i].map);
        free(s->v[i].text);
        free(s->v[i].what);
    }
    free(s->v);
    *s = (struct steps){0};
}

void step_work_free(struct step_work *w)
{
    for (int i = 0; i < 2; i++) {
        text_free(&w->text[i]);
        free(w->spans[i].v);
    }
    regex_match_free(w->match);
    buf_free(&w->chars);
    *w = (struct step_work){0};
}

static int run_split(const struct step *st, struct step_work *w, struct err *e)
{
    const struct spans *in = &w->spans[w->s];
    struct spans *out = &w->spans[!w->s];
    out->n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const struct span *sp = &in->v[i];
        if (sp->id != NO_ID) {
            if (spans_add(out, sp->start, sp->end, sp->id) != 0)
                return err_nomem(e);
        } else if (step_split(st, w, sp, out, e) != 0) {
            return -1;
        }
    }
    w->s = !w->s;
    return 0;
}

static bool idle(const struct step *st, const struct step_work *w)
{
    const struct spans *in = &w->spans[w->s];
    for (uint32_t i = 0; i < in->n; i++)
        if (in->v[i].id == NO_ID && !step_rewrite_idle(st, &w->text[w->t], &in->v[i]))
            return false;
    return true;
}

/* Rewrites the whole text, span by span; bytes between spans (removed ones) are dropped. */
static int run_rewrite(const struct step *st, struct step_work *w, struct err *e)
{
    const struct spans *in = &w->spans[w->s];
    struct spans *out = &w->spans[!w->s];
    struct text *from = &w->text[w->t], *to = &w->text[!w->t];
    if (idle(st, w))
        return 0;
    out->n = 0;
    buf_reset(&to->own);
    to->mapped = w->offsets;
    for (uint32_t i = 0; i < in->n; i++) {
        const struct span *sp = &in->v[i];
        struct rewrite r = {from, to, sp->start, sp->end, sp->start};
        uint32_t start = (uint32_t)to->own.len;
        if (sp->id != NO_ID)
            rewrite_copy(&r, sp->end - sp->start);
        else if (step_rewrite(st, w, &r, e) != 0)
            return -1;
        if (to->own.len >= UINT32_MAX / 2)
            return err_set(e, ERR_VALIDATION, "the text grows past 2 GiB while it is normalized");
        if (to->own.oom || spans_add(out, start, (uint32_t)to->own.len, sp->id) != 0)
            return err_nomem(e);
    }
    to->p = to->own.p ? to->own.p : "";
    to->n = (uint32_t)to->own.len;
    w->t = !w->t;
    w->s = !w->s;
    return 0;
}

int steps_run(const struct steps *s, struct step_work *w, struct err *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct step *st = &s->v[i];
        if (!w->match && st->find == FIND_REGEX && !(w->match = regex_match_new()))
            return err_nomem(e);
        if ((st->kind >= STEP_SPLIT ? run_split(st, w, e) : run_rewrite(st, w, e)) != 0)
            return -1;
    }
    return 0;
}
