#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every family: const struct vision_family vision_NAME in a file of this folder (Makefile). */
#define ROW(name) extern const struct vision_family vision_##name;
#include "visions.h"
#undef ROW
#define ROW(name) &vision_##name,
static const struct vision_family *const families[] = {
#include "visions.h"
};
#undef ROW
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

/* ---------------------------------------------------------------- load */

/* Its name in the row, or NULL. */
static const char *named(const struct vision_family *f, const char *type)
{
    for (int k = 0; k < VISION_MAX_TYPES && f->types[k]; k++)
        if (strcmp(f->types[k], type) == 0)
            return f->types[k];
    return NULL;
}

/* The family of a model, and its name in that. One of this tower precedes one of any tower. */
static const struct vision_family *find(const struct vision_settings *s, const char **name)
{
    const char *type = json_str(s->config.o, "model_type", "");
    const char *tower = json_str(s->tower.o, "model_name", json_str(s->tower.o, "model_type", ""));
    const struct vision_family *any = NULL;
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct vision_family *f = families[i];
        if (!named(f, type) || (f->tower && strcmp(f->tower, tower) != 0))
            continue;
        *name = named(f, type);
        if (f->tower)
            return f;
        any = f;
    }
    return any;
}

int vision_load(const char *dir, const struct tokenizer *t, struct vision **out, struct err *e)
{
    struct vision_settings s;
    const char *name;
    *out = NULL;
    int rc = vision_settings_open(&s, dir, t, e);
    const struct vision_family *f = rc == 0 && s.tower.o ? find(&s, &name) : NULL;
    struct vision *v = f ? calloc(1, sizeof(*v)) : NULL;
    if (f && !v)
        rc = err_nomem(e);
    if (v) {
        v->family = f;
        v->name = name;
        v->two_way = f->two_way;
        f->load(v, &s);
        if (!v->around[0])
            memcpy(v->around, v->marker, sizeof(v->marker));
        if (s.failed) {
            rc = -1;
            free(v);
        } else
            *out = v;
    }
    vision_settings_close(&s);
    return rc;
}

void vision_free(struct vision *v) { free(v); }

const char *vision_family(const struct vision *v) { return v->name; }
const char *vision_marker(const struct vision *v) { return v->marker; }
const char *vision_marker_around(const struct vision *v) { return v->around; }
uint32_t vision_token(const struct vision *v) { return v->token; }
bool vision_two_way(const struct vision *v) { return v->two_way; }
bool vision_prefix(const struct vision *v) { return v->family->prefix; }
bool vision_crosses(const struct vision *v) { return v->family->crosses; }
bool vision_alone(const struct vision *v) { return v->family->alone; }
bool vision_canvas(const struct vision *v) { return v->family->canvas; }
bool vision_belongs(const struct vision *v, uint32_t id)
{
    bool found = false;
    for (size_t i = 0; v->family->canvas && i < sizeof(v->minicpmv.around) / sizeof(id); i++)
        found |= v->minicpmv.around[i] == id;
    return found;
}
bool vision_three_positions(const struct vision *v) { return v->family->three_positions; }
bool vision_takes_videos(const struct vision *v) { return v->video.taken; }
const char *vision_video_marker(const struct vision *v) { return v->video.marker; }
const char *vision_video_around(const struct vision *v) { return v->video.around; }
uint32_t vision_video_token(const struct vision *v) { return v->video.token; }
bool vision_frames_apart(const struct vision *v) { return v->video.apart; }
uint32_t vision_most_frames(const struct vision *v)
{
    return v->video.taken ? VISION_MAX_CROPS * v->format.frames : 0;
}
const struct vision_format *vision_format(const struct vision *v) { return &v->format; }

/* ---------------------------------------------------------------- plans */

struct vision_rect vision_whole(const struct vision_plan *p)
{
    if (p->canvas.width)
        return (struct vision_rect){0, 0, p->canvas.width, p->canvas.height};
    return (struct vision_rect){0, 0, p->width, p->height};
}

void vision_square_canvas(struct vision_plan *p)
{
    const uint32_t side = p->width > p->height ? p->width : p->height;
    if (p->width != p->height)
        p->canvas = (struct vision_rect){(side - p->width) / 2, (side - p->height) / 2, side, side};
}

uint32_t vision_add_resize(struct vision_plan *p, int32_t of, struct vision_rect cut,
                           uint32_t width, uint32_t height)
{
    if (p->n_resizes < VISION_MAX_RESIZES)
        p->resizes[p->n_resizes] = (struct vision_resize){of, cut, width, height};
    return p->n_resizes++;
}

uint32_t vision_add_crop(struct vision_plan *p, uint32_t of, int64_t x, int64_t y)
{
    if (p->n_crops < VISION_MAX_CROPS)
        p->crops[p->n_crops] = (struct vision_crop){of, (int32_t)x, (int32_t)y, 0, 0};
    return p->n_crops++;
}

void vision_add_tiles(struct vision_plan *p, uint32_t of, uint32_t rows, uint32_t cols,
                      uint32_t stride, int64_t x, int64_t y)
{
    p->rows = rows;
    p->cols = cols;
    for (uint64_t i = 0; i < (uint64_t)rows * cols && p->n_crops < VISION_MAX_CROPS + 1; i++)
        vision_add_crop(p, of, x + (int64_t)(i % cols * stride), y + (int64_t)(i / cols * stride));
}

void vision_size_crop(struct vision_plan *p, uint32_t crop, uint32_t width, uint32_t height)
{
    if (crop < VISION_MAX_CROPS) {
        p->crops[crop].width = width;
        p->crops[crop].height = height;
    }
}

void vision_add_frames(struct vision_plan *p)
{
    const struct vision_crop first = p->crops[0];
    for (uint32_t i = 1; i < p->frames; i++)
        vision_add_crop(p, first.of, first.x, first.y);
    p->n_features = p->frames * p->grid_h * p->grid_w;
}

/* Limits that apply to every family. */
static int check_plan(const struct vision *v, const struct vision_plan *p, struct err *e)
{
    const uint64_t pixels = vision_pixels_before(p, p->n_crops);
    bool fits = p->n_resizes <= VISION_MAX_RESIZES && p->n_crops <= VISION_MAX_CROPS &&
                p->n_crops > 0 && pixels > 0 && pixels <= VISION_MAX_PIXELS &&
                (uint64_t)p->canvas.width * p->canvas.height <= VISION_MAX_PIXELS;
    for (uint32_t i = 0; fits && i < p->n_crops; i++) {
        const uint32_t w = vision_crop_width(p, i), h = vision_crop_height(p, i);
        fits = w && h && w <= VISION_MAX_CROP_SIDE && h <= VISION_MAX_CROP_SIDE &&
               w % v->format.patch == 0 && h % v->format.patch == 0;
    }
    for (uint32_t i = 0; fits && i < p->n_resizes; i++)
        fits = p->resizes[i].width > 0 && p->resizes[i].height > 0;
    if (fits)
        return 0;
    if (p->frames)
        return err_set(
            e, ERR_VALIDATION,
            "A video of %u frames of %u x %u pixels is beyond what this model's settings allow",
            p->frames, p->width, p->height);
    return err_set(e, ERR_VALIDATION,
                   "An image of %u x %u pixels is beyond what this model's settings allow",
                   p->width, p->height);
}

int vision_plan(const struct vision *v, uint32_t width, uint32_t height, struct vision_plan *out,
                struct err *e)
{
    *out = (struct vision_plan){.width = width, .height = height};
    if (width == 0 || height == 0 || width > VISION_MAX_SIDE || height > VISION_MAX_SIDE)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels cannot be used", width,
                       height);
    if (v->family->plan(v, out, e))
        return -1;
    out->n_tokens = v->family->crosses ? 1 : out->n_features;
    return check_plan(v, out, e);
}

/* Below this rate of frames, times of frames are beyond every number that is written. */
#define LEAST_FPS 1e-6

int vision_plan_video(const struct vision *v, const struct vision_video *video,
                      struct vision_plan *out, struct err *e)
{
    const uint32_t most = vision_most_frames(v);
    *out = (struct vision_plan){
        .width = video->width, .height = video->height, .frames = video->frames, .fps = video->fps};
    if (!v->video.taken)
        return err_set(e, ERR_VALIDATION, "This model takes no videos");
    if (!video->frames || video->frames > most)
        return err_set(e, ERR_VALIDATION, "A video may have at most %u frames. Given: %u", most,
                       video->frames);
    if (!video->width || !video->height || video->width > VISION_MAX_SIDE ||
        video->height > VISION_MAX_SIDE || !(isfinite(video->fps) && video->fps >= LEAST_FPS))
        return err_set(e, ERR_VALIDATION,
                       "A video of %u x %u pixels and %g frames per second cannot be used",
                       video->width, video->height, video->fps);
    if (v->family->plan_video(v, out, e))
        return -1;
    out->n_tokens = out->n_features;
    return check_plan(v, out, e);
}

const struct vision_format *vision_format_of(const struct vision *v, const struct vision_plan *p)
{
    return p->frames ? &v->video.format : &v->format;
}

uint32_t vision_token_of(const struct vision *v, const struct vision_plan *p)
{
    return p->frames ? v->video.token : v->token;
}

float vision_interval(const struct vision *v, const struct vision_plan *p)
{
    if (!p->frames)
        return 0;
    return v->family->interval ? v->family->interval(v, p) : 1;
}

void vision_repeat(struct buf *out, const char *text, uint64_t n)
{
    const size_t len = strlen(text);
    for (uint64_t i = 0; i < n; i++)
        buf_add(out, text, len);
}

void vision_expand(const struct vision *v, const struct vision_plan *p, uint32_t nth,
                   struct buf *out)
{
    if (p->frames) {
        v->family->expand_video(v, p, out);
        return;
    }
    if (v->family->number)
        v->family->number(v, nth, out);
    if (v->family->expand)
        v->family->expand(v, p, out);
    else
        vision_repeat(out, v->marker, p->n_features);
}

struct vision_frame vision_frame(const struct vision *v)
{
    return v->family->frame ? v->family->frame(v) : (struct vision_frame){"", "", false, false};
}

int vision_text(const struct vision *v, const char *text, size_t n, struct buf *out, struct err *e)
{
    if (v->family->text)
        return v->family->text(v, text, n, out, e);
    buf_add(out, text, n);
    return 0;
}

/* ---------------------------------------------------------------- positions */

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* How far grid number `t` of a video is behind its first one, in fp32 as in transformers. */
static uint32_t later(const struct vision_place *p, uint32_t t)
{
    return (uint32_t)((float)t * p->interval);
}

/* An image of n tokens takes as many positions as its longest side; one of a video's is time. */
static int32_t shift(const struct vision_place *p)
{
    const uint32_t cells = p->grid_h * p->grid_w, grids = cells ? p->n / cells : 0;
    const uint32_t time = p->interval > 0 && grids ? later(p, grids - 1) + 1 : 0;
    return (int32_t)larger(time, larger(p->grid_h, p->grid_w)) - (int32_t)p->n;
}

/* M-RoPE (arXiv 2409.12191): tokens after an image continue behind its longest side. */
static void by_longer_side(const struct vision_place *place, uint32_t n, uint32_t i,
                           uint32_t out[3])
{
    int32_t delta = 0;
    uint32_t k = 0;
    for (; k < n && i >= place[k].first + place[k].n; k++)
        delta += shift(&place[k]);
    const bool inside = k < n && i >= place[k].first && place[k].grid_w > 0;
    const uint32_t start = (inside ? place[k].first : i) + (uint32_t)delta;
    const bool video = inside && place[k].interval > 0;
    const uint32_t cells = video ? place[k].grid_h * place[k].grid_w : UINT32_MAX;
    const uint32_t at = inside ? i - place[k].first : 0;
    out[0] = start + (video ? later(&place[k], at / cells) : 0);
    out[1] = start + (inside ? at % cells / place[k].grid_w : 0);
    out[2] = start + (inside ? at % cells % place[k].grid_w : 0);
}

void vision_position(const struct vision *v, const struct vision_place *place, uint32_t n,
                     uint32_t i, uint32_t out[3])
{
    (v->family->position ? v->family->position : by_longer_side)(place, n, i, out);
}
