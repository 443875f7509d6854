#include "router/media/media.h"
#include "router/media/mark.h"
#include "router/media/read.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) return err_set(e, ERR_VALIDATION, "Input validation error: " __VA_ARGS__)

/* ---------------------------------------------------------------- positions in the text */

static bool next(const struct media *m, const struct ask *q, size_t at, struct mark *out)
{
    if (q->inline_images)
        return mark_inline(q->inputs, q->n_inputs, at, out);
    struct mark video;
    const bool image = mark_placeholder(q->inputs, q->n_inputs, at, vision_marker(m->vision), out);
    if (!vision_takes_videos(m->vision) ||
        !mark_placeholder(q->inputs, q->n_inputs, at, vision_video_marker(m->vision), &video) ||
        (image && out->at < video.at))
        return image;
    *out = video;
    out->video = true;
    return true;
}

/* Does the request contain images? TGI's ![](URL) in `inputs`, or separate ones. */
static bool media_wanted(const struct media *m, const struct ask *q)
{
    struct mark unused;
    return q->n_images || (m->vision && q->inline_images && q->inputs && next(m, q, 0, &unused));
}

/* The markers in the text, in order, and the image for each. */
static int find_marks(const struct media *m, const struct ask *q, struct arena *a,
                      struct mark **out, struct ask_image **image_out, uint32_t *n_out,
                      struct err *e)
{
    struct mark k;
    uint32_t n = 0;
    for (size_t at = 0; next(m, q, at, &k); at = k.at + k.n)
        n++;
    if (!q->inline_images && n != q->n_images)
        REFUSE("the prompt has %u placeholders of images, and %u images were given", n,
               q->n_images);
    if (n > m->rules->max_images)
        REFUSE("a request may have at most %u images. Given: %u", m->rules->max_images, n);
    struct mark *v = ARENA_NEW(a, struct mark, n);
    struct ask_image *image = ARENA_NEW(a, struct ask_image, n);
    if (!v || !image)
        return err_nomem(e);
    n = 0;
    for (size_t at = 0; next(m, q, at, &k); at = k.at + k.n, n++) {
        v[n] = k;
        image[n] =
            q->inline_images ? (struct ask_image){.url = k.url, .n_url = k.n_url} : q->images[n];
        if (image[n].video != k.video)
            REFUSE("the prompt has the placeholder of %s where %s was given",
                   k.video ? "a video" : "an image", image[n].video ? "a video" : "an image");
    }
    *out = v;
    *image_out = image;
    *n_out = n;
    return 0;
}

/* ---------------------------------------------------------------- reading */

static struct medium *find_read(const struct ask *q, const struct ask_image *s)
{
    struct medium *p = q->read ? *q->read : NULL;
    while (p && p->url != s->url)
        p = p->next;
    return p;
}

static struct medium *read_one(const struct media *m, const struct ask *q,
                               const struct ask_image *s, size_t max_bytes, uint64_t max_pixels,
                               struct arena *a, struct err *e)
{
    struct medium *p = find_read(q, s);
    if (p)
        return p;
    if (!(p = ARENA_NEW(a, struct medium, 1))) {
        err_nomem(e);
        return NULL;
    }
    if (media_read(m, q, s, max_bytes, max_pixels, p, e) != 0)
        return NULL;
    if (arena_defer(a, free, p->bytes) != 0) {
        free(p->bytes);
        err_nomem(e);
        return NULL;
    }
    p->url = s->url;
    if (q->read) {
        p->next = *q->read;
        *q->read = p;
    }
    return p;
}

static int read_all(const struct media *m, const struct ask *q, const struct ask_image *image,
                    uint32_t n, struct arena *a, struct media_prompt *out, struct err *e)
{
    size_t bytes = MEDIA_MAX_BYTES;
    uint64_t pixels = m->rules->max_pixels, tokens = 0;
    if (!(out->v = ARENA_NEW(a, struct medium *, n)))
        return err_nomem(e);
    for (; out->n_media < n; out->n_media++) {
        struct medium *p = read_one(m, q, &image[out->n_media], bytes, pixels, a, e);
        if (!p)
            return -1;
        const uint64_t shown =
            (uint64_t)p->plan.width * p->plan.height * (p->plan.frames ? p->plan.frames : 1);
        bytes -= p->n < bytes ? p->n : bytes;
        pixels -= shown < pixels ? shown : pixels;
        tokens += p->plan.n_tokens;
        out->v[out->n_media] = p;
        if (m->max_whole && p->plan.n_tokens > m->max_whole)
            REFUSE("an image of %u tokens does not fit into a step of %u tokens "
                   "(--max-batch-prefill-tokens)",
                   p->plan.n_tokens, m->max_whole);
    }
    if (tokens > m->max_tokens)
        REFUSE("the images of a request may have at most %u tokens. Given: %llu", m->max_tokens,
               (unsigned long long)tokens);
    /* ids and text of placeholders, which the body's length does not cover */
    a->limit += 64 * tokens;
    return 0;
}

/* ---------------------------------------------------------------- the text */

static void put_picture(const struct media *m, const struct ask *q, const struct medium *p,
                        uint32_t nth, struct buf *out)
{
    const char *marker = vision_marker(m->vision), *around = vision_marker_around(m->vision);
    const char *at = q->inline_images ? strstr(around, marker) : NULL;
    if (at)
        buf_add(out, around, (size_t)(at - around));
    vision_expand(m->vision, &p->plan, nth, out);
    if (at)
        buf_str(out, at + strlen(marker));
}

static int expand(const struct media *m, const struct ask *q, const struct mark *mark,
                  struct arena *a, struct media_prompt *out, struct err *e)
{
    const struct vision_frame f = vision_frame(m->vision);
    struct buf b = BUF_INIT, behind = BUF_INIT; /* behind: the text that follows the images */
    size_t at = 0;
    for (uint32_t i = 0; i < out->n_media; at = mark[i].at + mark[i].n, i++) {
        buf_add(f.first ? &behind : &b, q->inputs + at, mark[i].at - at);
        put_picture(m, q, out->v[i], i, &b);
    }
    buf_add(&behind, q->inputs + at, q->n_inputs - at);
    buf_str(&b, f.behind);
    const int rc = vision_text(m->vision, behind.p ? behind.p : "", behind.len, &b, e);
    b.oom |= behind.oom;
    buf_free(&behind);
    if (rc != 0) {
        buf_free(&b);
        return -1;
    }
    buf_str(&b, f.end);
    out->bare = f.bare;
    out->n = b.len;
    char *text = b.oom ? NULL : buf_take(&b);
    buf_free(&b);
    out->text = text;
    if (text && arena_defer(a, free, text) == 0)
        return 0;
    free(text);
    return err_nomem(e);
}

int media_prompt(const struct media *m, const struct ask *ask, struct arena *a,
                 struct media_prompt *out, struct err *e)
{
    struct ask own = *ask;
    const struct ask *const q = &own;
    struct mark *mark = NULL;
    struct ask_image *image = NULL;
    uint32_t n = 0;
    if (ask->guarded) {
        own.inputs = ask->guarded;
        own.n_inputs = ask->n_guarded;
    }
    *out = (struct media_prompt){.text = q->inputs, .n = q->n_inputs, .guarded = ask->guarded};
    if (!media_wanted(m, q))
        return 0;
    if (!m->vision)
        REFUSE("image inputs are not supported by this model");
    if (find_marks(m, q, a, &mark, &image, &n, e) != 0 || read_all(m, q, image, n, a, out, e) != 0)
        return -1;
    return expand(m, q, mark, a, out, e);
}

/* ---------------------------------------------------------------- the ids */

int media_places(const struct media *m, const struct media_prompt *p, const uint32_t *ids,
                 uint32_t n, struct arena *a, struct gen_request *r, struct err *e)
{
    uint32_t found = 0, k = 0, left = 0;
    uint64_t expected = 0;
    if (!p->n_media)
        return 0;
    const uint32_t image = vision_token(m->vision);
    const uint32_t video = vision_takes_videos(m->vision) ? vision_video_token(m->vision) : image;
    struct gen_medium *v = ARENA_NEW(a, struct gen_medium, p->n_media);
    if (!v)
        return err_nomem(e);
    for (uint32_t i = 0; i < p->n_media; i++)
        expected += p->v[i]->plan.n_tokens;
    for (uint32_t i = 0; i < n; i++)
        found += ids[i] == image || ids[i] == video;
    if (found != expected)
        REFUSE("the prompt has %u placeholders of images where its images need %llu", found,
               (unsigned long long)expected);
    for (uint32_t i = 0; i < n && k < p->n_media; i++) {
        if (ids[i] != image && ids[i] != video)
            continue;
        const struct medium *of = p->v[k];
        if (ids[i] != vision_token_of(m->vision, &of->plan))
            REFUSE("the prompt has a placeholder of another kind than image %u of the request", k);
        if (left == 0) {
            left = of->plan.n_tokens;
            v[k] = (struct gen_medium){.bytes = of->bytes,
                                       .n_bytes = of->n,
                                       .type = of->type,
                                       .first = i,
                                       .digest = of->digest};
        }
        if (--left == 0) {
            v[k].n = i + 1 - v[k].first;
            k++;
        }
    }
    assert(k == p->n_media);
    r->media = v;
    r->n_media = k;
    r->whole_media = vision_two_way(m->vision);
    r->whole_prompt = vision_prefix(m->vision);
    if (r->whole_prompt && m->max_whole && n > m->max_whole)
        REFUSE("a prompt of %u tokens with images does not fit into a step of %u tokens "
               "(--max-batch-prefill-tokens)",
               n, m->max_whole);
    return 0;
}
