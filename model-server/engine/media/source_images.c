/* source_images.c - rows of images: files to pixels, and those through a vision tower. */
#include "common/image/reel.h"
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample_kernels.h"
#include "model-server/engine/media/pictures_impl.h"
#include <stdlib.h>

static int plan_of(const struct pictures *p, const struct media_spec *s, struct vision_plan *plan,
                   struct err *e)
{
    struct image_info info;
    struct reel_info reel;
    if (reel_is(s->bytes, s->n_bytes)) {
        if (reel_sniff(s->bytes, s->n_bytes, &image_default_limits, &reel, e))
            return -1;
        const struct vision_video video = {reel.width, reel.height, reel.frames, reel.fps};
        return vision_plan_video(p->o.vision, &video, plan, e) || tower_check(p->o.tower, plan, e)
                   ? -1
                   : 0;
    }
    return image_sniff(s->bytes, s->n_bytes, &image_default_limits, &info, e) ||
                   vision_plan(p->o.vision, info.width, info.height, plan, e) ||
                   tower_check(p->o.tower, plan, e)
               ? -1
               : 0;
}

static int shape(const struct pictures *p, const struct media_spec *s, struct medium_shape *out,
                 struct err *e)
{
    struct vision_plan plan;
    if (plan_of(p, s, &plan, e))
        return -1;
    *out = (struct medium_shape){.rows = plan.n_features,
                                 .tokens = plan.n_tokens,
                                 .grid_h = plan.grid_h,
                                 .grid_w = plan.grid_w,
                                 .tiles = plan.tiles,
                                 .width = plan.width,
                                 .height = plan.height,
                                 .token = vision_token_of(p->o.vision, &plan),
                                 .interval = vision_interval(p->o.vision, &plan),
                                 .apart = plan.frames && vision_frames_apart(p->o.vision)};
    return 0;
}

static int read_image(struct pictures *p, const struct media_spec *s, struct medium *m,
                      struct err *e)
{
    if (plan_of(p, s, &m->plan, e))
        return -1;
    const int rc =
        m->plan.frames
            ? reel_decode(p->o.decode, p->o.decode_arg, s->bytes, s->n_bytes, &m->picture, e)
            : p->o.decode(p->o.decode_arg, s->bytes, s->n_bytes, NULL, &m->picture, e);
    if (rc)
        return -1;
    if (!m->digest)
        m->digest = image_digest(&m->picture);
    if (m->picture.width == m->plan.width && m->picture.height == m->plan.height)
        return 0;
    return err_set(e, ERR_VALIDATION, "a picture is of %u x %u pixels, and its file says %u x %u",
                   m->picture.width, m->picture.height, m->plan.width, m->plan.height);
}

static void drop(struct medium *m) { image_free(&m->picture); }

/* ---------------------------------------------------------------- encoding */

int source_pixels(const struct pictures *p, const struct medium *m, float *to,
                  struct tower_image *out, struct err *e)
{
    const struct vision_format *f = vision_format_of(p->o.vision, &m->plan);
    const struct backend_ops *ops = p->o.ops;
    const bool alone = !ops->host_run;
    const struct pixels_workers w = {.threads = alone ? 1 : ops->host_threads(p->o.dev),
                                     .run = ops->host_run,
                                     .device = p->o.dev,
                                     .features = resample_features()};
    float *pixels = malloc(pixels_count(f, &m->plan, f->layout) * sizeof(*pixels));
    if (!pixels)
        return err_nomem(e);
    *out = (struct tower_image){.plan = &m->plan, .pixels = pixels, .layout = f->layout, .out = to};
    return pixels_make(f, &m->plan, &m->picture, f->layout, alone ? NULL : &w, pixels, e);
}

void source_drop_pixels(struct tower_image *images, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free((void *)(uintptr_t)images[i].pixels);
}

static int begin(struct pictures *p, struct medium *const *m, uint32_t n, struct err *e)
{
    if (!(p->work.images = calloc(n, sizeof(*p->work.images))))
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        if (source_pixels(p, m[i], m[i]->unfinished, &p->work.images[i], e))
            return -1;
    return tower_begin(p->o.tower, p->work.images, n, e);
}

static int go_on(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    return tower_go_on(p->o.tower, most, done, e);
}

static bool busy(const struct pictures *p) { return tower_busy(p->o.tower); }

static void stop(struct pictures *p)
{
    tower_stop(p->o.tower);
    if (p->work.images)
        source_drop_pixels(p->work.images, p->n_current);
    free(p->work.images);
    p->work.images = NULL;
}

/* ---------------------------------------------------------------- sizes */

static uint32_t row(const struct pictures *p) { return tower_row(p->o.tower); }
static const float *token(const struct pictures *p) { return tower_token(p->o.tower); }
static uint32_t most_rows(const struct pictures *p) { return tower_most_features(p->o.tower); }

static int reserve(struct pictures *p, uint32_t tokens, struct err *e)
{
    return tower_reserve(p->o.tower, tokens, e);
}

static uint64_t memory(const struct pictures *p, uint32_t tokens)
{
    return tower_weight_bytes(p->o.tower) + tower_reserve_bytes(p->o.tower, tokens);
}

_Static_assert(TOWER_ALL == SOURCE_ALL, "no limit");
const struct source_ops source_images = {.shape = shape,
                                         .read = read_image,
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
