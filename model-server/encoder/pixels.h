/* pixels.h - a picture, by its plan, to the numbers that a vision tower takes.
 *
 * The plan and the format are the family's (common/vision/vision.h). Sizes are the plan's, which
 * bounds them: VISION_MAX_PIXELS. The numbers are those of Pillow 12 and transformers, to the bit,
 * whatever the CPU and the number of threads. */
#ifndef MODEL_SERVER_ENCODER_PIXELS_H
#define MODEL_SERVER_ENCODER_PIXELS_H
#include "common/err.h"
#include "common/image/image.h"
#include "common/vision/vision.h"

struct device;

/* Who works: run() is a backend's host_run(), threads its host_threads(). */
struct pixels_workers {
    int threads;
    void (*run)(struct device *d, void (*fn)(void *arg, int thread, size_t begin, size_t end),
                void *arg, size_t n);
    struct device *device;
    unsigned features; /* what kernels may use, of resample_features() (resample_kernels.h) */
};

/* How many floats pixels_make() writes. */
size_t pixels_count(const struct vision_format *f, const struct vision_plan *p,
                    enum vision_layout layout);
/* Writes them to `out`, in `layout`: the format's own, or another one that the tower prefers.
 * `picture` has the plan's width and height. `w` NULL: the caller works alone, with all features.
 * Memory beside `out`: 3 bytes for each pixel that is resized. ERR_SYSTEM: there is none. */
int pixels_make(const struct vision_format *f, const struct vision_plan *p,
                const struct image *picture, enum vision_layout layout,
                const struct pixels_workers *w, float *out, struct err *e);
#endif
