/* Videos of Qwen2-VL (arXiv 2409.12191), 2.5-VL (2502.13923), 3-VL, 3.5 and 4, of LFM3-VL, and of
 * GLM-4.1V to 4.6V (2507.01006). Each two frames become one row of patches, and one crop, which
 * attends to itself only. Qwen2.5-VL has a crop's time in the first of its positions, Qwen3-VL in
 * text before its tokens, GLM in text behind them. */
#include "common/json/json.h"
#include "common/vision/qwen.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A class of video processors. A file with one bound, mostly of images, leaves the other to the
 * class, which may then be beyond it: as in transformers the upper one counts. `older`: two older
 * keys precede those of `size`. `all`: the bounds are of all frames. */
struct qwen_films {
    const char *types[6];
    bool all, older;
    enum vision_time time;
    uint32_t least, most;
    const char *start_key, *end_key; /* of the tokens around a frame */
};
static const struct qwen_films films[] = {
    {{"qwen2_vl", "qwen2_5_vl"},
     .older = true,
     .least = 128 * 28 * 28,
     .most = 768 * 28 * 28,
     .start_key = "vision_start_token_id",
     .end_key = "vision_end_token_id"},
    {{"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "lfm3_vl"},
     .all = true,
     .time = VISION_TIME_BEFORE,
     .least = 128 * 32 * 32,
     .most = 768 * 32 * 32,
     .start_key = "vision_start_token_id",
     .end_key = "vision_end_token_id"},
    {{"glm4v", "glm4v_moe"},
     .all = true,
     .time = VISION_TIME_WHOLE_BEHIND,
     .least = 112 * 112,
     .most = 2 * 28 * 28 * 30000,
     .start_key = "image_start_token_id",
     .end_key = "image_end_token_id"},
    {{"glm46v"},
     .all = true,
     .time = VISION_TIME_BEHIND,
     .least = 112 * 112,
     .most = 2 * 28 * 28 * 30000,
     .start_key = "image_start_token_id",
     .end_key = "image_end_token_id"},
};

/* NULL: the model takes no videos. */
static const struct qwen_films *films_of(const char *name)
{
    for (size_t i = 0; i < sizeof(films) / sizeof(films[0]); i++)
        for (size_t k = 0; k < sizeof(films[i].types) / sizeof(films[i].types[0]); k++)
            if (films[i].types[k] && !strcmp(name, films[i].types[k]))
                return &films[i];
    return NULL;
}

static void load_video_size(struct vision *v, struct vision_settings *s, const struct qwen_films *f)
{
    const struct vision_section size = vision_inside(&s->video, "size");
    uint32_t least = vision_u32(s, &size, "shortest_edge", f->least, 1, VISION_MAX_PIXELS);
    uint32_t most = vision_u32(s, &size, "longest_edge", f->most, 1, VISION_MAX_PIXELS);
    if (f->older) {
        least = vision_u32(s, &size, "min_pixels", least, 1, VISION_MAX_PIXELS);
        most = vision_u32(s, &size, "max_pixels", most, 1, VISION_MAX_PIXELS);
        least = vision_u32(s, &s->video, "min_pixels", least, 1, VISION_MAX_PIXELS);
        most = vision_u32(s, &s->video, "max_pixels", most, 1, VISION_MAX_PIXELS);
    }
    v->qwen.video.min_pixels = least;
    v->qwen.video.max_pixels = most;
}

/* Qwen's templates write one token with two around it. Qwen3-VL has both for each frame, behind its
 * time, instead. */
static void load_qwen_tokens(struct vision *v, struct vision_settings *s)
{
    const char *const start = v->qwen.video.start, *const end = v->qwen.video.end;
    v->video.token = vision_read_token(s, "video_token_id", "<|video_pad|>", 151656, v->video.pad);
    snprintf(v->video.around, sizeof(v->video.around), "%s%s%s", start, v->video.pad, end);
    snprintf(v->video.marker, sizeof(v->video.marker), "%s",
             v->video.apart ? v->video.around : v->video.pad);
}

/* GLM's templates write such tokens, too, and they stay; between them, frames are images. */
static void load_glm_tokens(struct vision *v, struct vision_settings *s)
{
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT], film[VISION_TOKEN_TEXT];
    vision_read_token(s, "video_token_id", "<|video|>", 151344, film);
    vision_read_token(s, "video_start_token_id", "<|begin_of_video|>", 151341, start);
    vision_read_token(s, "video_end_token_id", "<|end_of_video|>", 151342, end);
    v->video.token = v->token;
    memcpy(v->video.pad, v->marker, sizeof(v->video.pad));
    snprintf(v->video.marker, sizeof(v->video.marker), "%s", film);
    snprintf(v->video.around, sizeof(v->video.around), "%s%s%s", start, film, end);
}

void qwen_load_video(struct vision *v, struct vision_settings *s,
                     const struct vision_pixel_defaults *d)
{
    const struct qwen_films *const f = films_of(v->name);
    const bool glm = f && f->time >= VISION_TIME_BEHIND;
    if (!f || !json_get(s->config.o, "video_token_id"))
        return;
    v->video.apart = v->qwen.video.all_frames = f->all;
    v->qwen.video.time = f->time;
    if (strcmp(v->name, "qwen2_5_vl") == 0)
        v->qwen.video.positions_per_second =
            vision_u32(s, &s->tower, "tokens_per_second", 4, 1, 1024);
    vision_read_video_format(s, v, d);
    if (vision_flag(&s->video, "cap_pixels_per_frame", false))
        vision_settings_fail(s, "%s: cap_pixels_per_frame must be false", s->video.name);
    load_video_size(v, s, f);
    vision_read_token(s, f->start_key, glm ? "<|begin_of_image|>" : "<|vision_start|>",
                      glm ? 151339 : 151652, v->qwen.video.start);
    vision_read_token(s, f->end_key, glm ? "<|end_of_image|>" : "<|vision_end|>",
                      glm ? 151340 : 151653, v->qwen.video.end);
    (glm ? load_glm_tokens : load_qwen_tokens)(v, s);
    v->video.taken = !s->failed;
}

/* Frames that become one row of patches are one crop. */
int qwen_plan_video(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const bool all = v->qwen.video.all_frames;
    const uint32_t each = v->format.frames, n = (out->frames + each - 1) / each;
    const struct qwen_bounds b = {
        (double)v->qwen.video.min_pixels, (double)v->qwen.video.max_pixels, all ? out->frames : 1,
        all ? nearbyint((double)out->frames / each) * each : 1, all ? qwen_enlarge_both : NULL};
    if (all && out->frames < each)
        return err_set(e, ERR_VALIDATION, "A video must have at least %u frames. Given: %u", each,
                       out->frames);
    if (qwen_fit(v, &b, out, e))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        vision_add_crop(out, 0, 0, 0);
    out->n_features = n * out->grid_h * out->grid_w;
    return 0;
}

float qwen_interval(const struct vision *v, const struct vision_plan *p)
{
    const uint32_t per_second = v->qwen.video.positions_per_second;
    return per_second ? (float)per_second * (float)(v->format.frames / p->fps) : 1;
}

/* The seconds of a frame; behind the end the last one is repeated. */
static double seconds(const struct vision_plan *p, uint32_t frame)
{
    const uint32_t end = p->frames - 1;
    return (frame < end ? frame : end) / p->fps;
}

/* Qwen3-VL's time of a crop is the mean of its first and its last frame's, GLM's that of the first.
 */
static void put_frame(const struct vision *v, const struct vision_plan *p, uint32_t crop,
                      struct buf *out)
{
    const uint32_t each = v->format.frames, a = crop * each;
    const double first = seconds(p, a);
    if (v->qwen.video.time == VISION_TIME_BEFORE)
        buf_fmt(out, "<%.1f seconds>", (first + seconds(p, a + each - 1)) / 2);
    buf_str(out, v->qwen.video.start);
    vision_repeat(out, v->video.pad, (uint64_t)p->grid_h * p->grid_w);
    buf_str(out, v->qwen.video.end);
    if (v->qwen.video.time == VISION_TIME_BEHIND)
        buf_fmt(out, "%.1f seconds", first);
    else if (v->qwen.video.time == VISION_TIME_WHOLE_BEHIND)
        buf_fmt(out, "%llu", (unsigned long long)first);
}

void qwen_expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t i = 0; v->video.apart && i < p->n_crops; i++)
        put_frame(v, p, i, out);
    if (!v->video.apart)
        vision_repeat(out, v->video.pad, p->n_features);
}
