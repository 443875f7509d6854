/* embed_shown.c - prompts with images that are embedded. */
#include "router/call/embed_impl.h"
#include "router/media/media.h"
#include <string.h>

/* --max-images and --max-image-pixels are of a request, whose prompts are read one by one. */
static int check_count(const struct encoding *x, const struct media_rules *rules)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->q->n; i++) {
        const struct text_input *in = &x->q->in[i];
        const struct ask *const shown[] = {in->shown, in->first_shown, in->second_shown};
        for (int k = 0; k < 3; k++)
            n += shown[k] ? shown[k]->n_images : 0;
    }
    return n <= rules->max_images
               ? 0
               : err_set(x->e, ERR_VALIDATION,
                         "Input validation error: a request may have at most %u images. Given: "
                         "%llu",
                         rules->max_images, (unsigned long long)n);
}

static int add_sizes(struct encoding *x, const struct media_rules *rules,
                     const struct media_prompt *p)
{
    for (uint32_t i = 0; i < p->n_media; i++) {
        x->pixels += (uint64_t)p->v[i]->plan.width * p->v[i]->plan.height;
        x->bytes += p->v[i]->n;
    }
    if (x->pixels > rules->max_pixels)
        return err_set(x->e, ERR_VALIDATION,
                       "Input validation error: the images of a request may have at most %llu "
                       "pixels together",
                       (unsigned long long)rules->max_pixels);
    return x->bytes <= MEDIA_MAX_BYTES
               ? 0
               : err_set(x->e, ERR_VALIDATION,
                         "Input validation error: the images of a request may have at most %zu "
                         "bytes together",
                         MEDIA_MAX_BYTES);
}

/* The same with `prompt` in front of its text. */
static int behind(const struct encoding *x, const char *prompt, struct ask *q)
{
    const size_t front = prompt ? strlen(prompt) : 0;
    char *both = front ? arena_alloc(&x->c->arena, front + q->n_inputs + 1, 1) : NULL;
    if (!front)
        return 0;
    if (!both)
        return err_nomem(x->e);
    memcpy(both, prompt, front);
    memcpy(both + front, q->inputs, q->n_inputs);
    both[front + q->n_inputs] = '\0';
    q->inputs = both;
    q->n_inputs += front;
    return 0;
}

/* The ids of `p`, and what stands before and behind it. */
static int encode_prompt(const struct encoding *x, const struct ask *q,
                         const struct media_prompt *p, struct embed_text *out)
{
    struct tok_part a;
    if (embed_ids(x, p->text, p->n, p->guarded ? TOK_GUARDED : 0, &a))
        return -1;
    const uint32_t whole = a.n;
    if (q->add_special_tokens && !p->bare) {
        if (embed_frame(x, &a, NULL, out))
            return -1;
    } else if (embed_fit(x, &a, NULL, 0)) {
        return -1;
    } else {
        *out = (struct embed_text){.ids = a.id, .n = a.n};
    }
    if (p->n_media && a.n < whole)
        return err_set(x->e, ERR_VALIDATION,
                       "Input validation error: a prompt with images is not truncated. It has %u "
                       "tokens",
                       whole);
    return 0;
}

/* An image without a text: its placeholder is no text either. */
static int encode_alone(const struct encoding *x, const struct media *m, const struct ask *q,
                        const struct media_prompt *p, struct embed_text *out)
{
    uint32_t *id = ARENA_NEW(&x->c->arena, uint32_t, 1);
    if (p->n_media != 1 || strcmp(q->inputs, vision_marker(m->vision)) != 0)
        return err_set(x->e, ERR_VALIDATION,
                       "Input validation error: this model embeds a text or one image, not both "
                       "together");
    if (!id)
        return err_nomem(x->e);
    const struct vision_plan *plan = &p->v[0]->plan;
    *id = vision_token(m->vision);
    *out = (struct embed_text){.ids = id, .n = 1, .cost = plan->grid_h * plan->grid_w + 1};
    return 0;
}

int embed_shown(struct encoding *x, const struct text_input *in, const char *prompt,
                struct embed_text *out)
{
    const struct media m = edge_media(x->c->edge);
    struct arena *a = &x->c->arena;
    struct gen_request r = {0};
    struct ask q = *in->shown;
    struct media_prompt p;
    const bool alone = m.vision && vision_alone(m.vision);
    prompt = alone ? NULL : prompt;
    if ((x->bytes == 0 && check_count(x, m.rules)) || behind(x, prompt, &q) ||
        media_prompt(&m, &q, a, &p, x->e) || add_sizes(x, m.rules, &p) ||
        (alone ? encode_alone(x, &m, &q, &p, out) : encode_prompt(x, &q, &p, out)) ||
        embed_skipped(x, prompt, &out->skip) || media_places(&m, &p, out->ids, out->n, a, &r, x->e))
        return -1;
    out->media = r.media;
    out->n_media = r.n_media;
    for (uint32_t i = 0; i < r.n_media; i++)
        out->n_bytes += r.media[i].n_bytes;
    return 0;
}
