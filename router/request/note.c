#include "router/request/note.h"
#include <stdlib.h>
#include <string.h>

/* The first pass, with at == NULL, adds up sizes; the second copies. */
struct packer {
    char *at;
    size_t n;
};

static void *put(struct packer *p, const void *src, size_t n)
{
    size_t aligned = (p->n + 15) & ~(size_t)15;
    void *dst = p->at ? p->at + aligned : NULL;
    if (dst && n)
        memcpy(dst, src, n);
    p->n = aligned + n;
    return dst;
}

static const char *put_text(struct packer *p, const char *s, size_t n)
{
    char *dst = p->at ? p->at + p->n : NULL;
    if (dst) {
        if (n)
            memcpy(dst, s, n);
        dst[n] = 0;
    }
    p->n += n + 1;
    return dst;
}

static const struct gen_token *put_tokens(struct packer *p, const struct gen_token *t, uint32_t n)
{
    struct gen_token *copy = put(p, t, n * sizeof(*t));
    for (uint32_t i = 0; i < n; i++) {
        const char *text = put_text(p, t[i].text, t[i].text_len);
        if (copy)
            copy[i].text = text;
    }
    return copy;
}

static void pack(struct packer *p, struct gen_event *to, const struct gen_event *ev)
{
    if (ev->n_prefill)
        to->prefill = put_tokens(p, ev->prefill, ev->n_prefill);
    if (ev->n_top)
        to->top = put_tokens(p, ev->top, ev->n_top);
    to->token.text = put_text(p, ev->token.text, ev->token.text_len);
    if (ev->end) {
        struct gen_end *end = put(p, ev->end, sizeof(*end));
        const char *text = put_text(p, ev->end->text, ev->end->text_len);
        if (end)
            end->text = text;
        to->end = end;
    }
    if (ev->err)
        to->err = put(p, ev->err, sizeof(*ev->err));
}

struct note *note_copy(struct gen_request *r, const struct gen_event *ev)
{
    struct packer p = {0};
    struct gen_event ignored = *ev;
    pack(&p, &ignored, ev);
    struct note *n = malloc(sizeof(*n) + 16 + p.n);
    if (!n)
        return NULL;
    n->request = r;
    n->event = *ev;
    uintptr_t behind = ((uintptr_t)(n + 1) + 15) & ~(uintptr_t)15;
    p = (struct packer){.at = (char *)behind};
    pack(&p, &n->event, ev);
    return n;
}
