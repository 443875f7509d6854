/* qwen.h - private to qwen.c and qwen_video.c. */
#ifndef COMMON_VISION_QWEN_H
#define COMMON_VISION_QWEN_H
#include "common/vision/settings.h"

/* Bounds of the pixels of so many frames. `whole_frames` are those of whole crops, which is what
 * the bounds are compared with. */
struct qwen_bounds {
    double least, most, frames, whole_frames;
    void (*enlarge)(double f, double *h, double *w);
};
/* Sets the sides of a crop, its grid, and the resize to them. ERR_VALIDATION: too long a side. */
int qwen_fit(const struct vision *v, const struct qwen_bounds *b, struct vision_plan *out,
             struct err *e);
/* Both sides grow until neither is less than that of a feature, `f`. */
void qwen_enlarge_both(double f, double *h, double *w);

/* The members of vision_family for videos, and the last part of its load(). */
void qwen_load_video(struct vision *v, struct vision_settings *s,
                     const struct vision_pixel_defaults *d);
int qwen_plan_video(const struct vision *v, struct vision_plan *out, struct err *e);
float qwen_interval(const struct vision *v, const struct vision_plan *p);
void qwen_expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out);
#endif
