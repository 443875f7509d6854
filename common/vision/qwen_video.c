/* Videos of Qwen2-VL (arXiv 2409.12191), 2.5-VL (2502.13923), 3-VL and 3.5. Each two frames become
 * one row of patches, and one crop, which attends to itself only. Qwen2.5-VL has a crop's time in
 * the first of its positions, Qwen3-VL in text before its tokens. */
#include "common/json/json.h"
#include "common/vision/qwen.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Means and filter may differ from those of images, patches do not. */
static void load_video_format(struct vision *v, struct vision_settings *s,
                              const struct vision_pixel_defaults *d)
{
    struct vision_settings of_video = *s;
    of_video.pixels = s->video;
    v->video.format = v->format;
    vision_read_format(&of_video, &v->video.format, d);
    v->video.format.patch = v->format.patch;
    v->video.format.merge = v->format.merge;
    v->video.format.frames = v->format.frames;
    v->video.format.layout = v->format.layout;
    s->failed |= of_video.failed;
    const struct {
        const char *key;
        uint32_t is;
    } equal[] = {{"patch_size", v->format.patch},
                 {"merge_size", v->format.merge},
                 {"temporal_patch_size", v->format.frames}};
    for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]); i++)
        vision_u32(s, &s->video, equal[i].key, equal[i].is, equal[i].is, equal[i].is);
    if (vision_flag(&s->video, "cap_pixels_per_frame", false))
        vision_settings_fail(s, "%s: cap_pixels_per_frame must be false", s->video.name);
}

/* Qwen2-VL's class has two older keys, which precede those of `size`; Qwen3-VL's does not. A file
 * with one bound, mostly of images, leaves the other to the class, which may then be beyond it: as
 * in transformers the upper one counts. */
static void load_video_size(struct vision *v, struct vision_settings *s)
{
    const struct vision_section size = vision_inside(&s->video, "size");
    const bool third = v->qwen.video.all_frames;
    const uint32_t f = third ? 32 : 28;
    uint32_t least = vision_u32(s, &size, "shortest_edge", 128 * f * f, 1, VISION_MAX_PIXELS);
    uint32_t most = vision_u32(s, &size, "longest_edge", 768 * f * f, 1, VISION_MAX_PIXELS);
    if (!third) {
        least = vision_u32(s, &size, "min_pixels", least, 1, VISION_MAX_PIXELS);
        most = vision_u32(s, &size, "max_pixels", most, 1, VISION_MAX_PIXELS);
        least = vision_u32(s, &s->video, "min_pixels", least, 1, VISION_MAX_PIXELS);
        most = vision_u32(s, &s->video, "max_pixels", most, 1, VISION_MAX_PIXELS);
    }
    v->qwen.video.min_pixels = least;
    v->qwen.video.max_pixels = most;
}

/* Templates write one token with two around it. Qwen3-VL has both for each frame, behind its time,
 * instead. A model whose config.json has no such token takes no videos. */
void qwen_load_video(struct vision *v, struct vision_settings *s,
                     const struct vision_pixel_defaults *d)
{
    char *const start = v->qwen.video.start, *const end = v->qwen.video.end;
    static const char *const takers[] = {"qwen2_vl",     "qwen2_5_vl", "qwen3_vl",
                                         "qwen3_vl_moe", "qwen3_5",    "qwen3_5_moe"};
    bool takes = false;
    for (size_t i = 0; i < sizeof(takers) / sizeof(takers[0]); i++)
        takes |= !strcmp(v->name, takers[i]);
    if (!takes || !json_get(s->config.o, "video_token_id"))
        return;
    v->video.apart = v->qwen.video.all_frames = strncmp(v->name, "qwen3", 5) == 0;
    if (strcmp(v->name, "qwen2_5_vl") == 0)
        v->qwen.video.positions_per_second =
            vision_u32(s, &s->tower, "tokens_per_second", 4, 1, 1024);
    load_video_format(v, s, d);
    load_video_size(v, s);
    v->video.token = vision_read_token(s, "video_token_id", "<|video_pad|>", 151656, v->video.pad);
    vision_read_token(s, "vision_start_token_id", "<|vision_start|>", 151652, start);
    vision_read_token(s, "vision_end_token_id", "<|vision_end|>", 151653, end);
    snprintf(v->video.around, sizeof(v->video.around), "%s%s%s", start, v->video.pad, end);
    snprintf(v->video.marker, sizeof(v->video.marker), "%s",
             v->video.apart ? v->video.around : v->video.pad);
    v->video.taken = !s->failed;
}

/* Frames that become one row of patches are one crop. Qwen3-VL's bounds are of all frames. */
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

/* The time of a crop is the mean of its first and its last frame's; behind the end the last frame
 * is repeated. */
static double seconds(const struct vision_plan *p, uint32_t crop, uint32_t each)
{
    const uint32_t end = p->frames - 1, a = crop * each, b = a + each - 1;
    return ((a < end ? a : end) / p->fps + (b < end ? b : end) / p->fps) / 2;
}

void qwen_expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t i = 0; v->video.apart && i < p->n_crops; i++) {
        buf_fmt(out, "<%.1f seconds>%s", seconds(p, i, v->format.frames), v->qwen.video.start);
        vision_repeat(out, v->video.pad, (uint64_t)p->grid_h * p->grid_w);
        buf_str(out, v->qwen.video.end);
    }
    if (!v->video.apart)
        vision_repeat(out, v->video.pad, p->n_features);
}
