/* pixels.h - preprocessing: a picture becomes the input of a vision tower.
 *
 * The family provides plan and format (common/vision/vision.h). The plan bounds all sizes
 * (VISION_MAX_PIXELS). Results are bit-identical to Pillow 12 and transformers, on every CPU and
 * with any number of threads. */
#ifndef MODEL_SERVER_ENCODER_PIXELS_H
#define MODEL_SERVER_ENCODER_PIXELS_H
#include "common/err.h"
#include "common/image/image.h"
#include "common/vision/vision.h"

struct device;

/* A thread pool: host_threads() and host_run() of a backend. */
struct pixels_workers {
    int threads;
    /* calls fn for all of [0, n) in parts, and returns when it is done; NULL: in the caller */
    void (*run)(struct device *d, void (*fn)(void *arg, int thread, size_t begin, size_t end),
                void *arg, size_t n);
    struct device *device;
    unsigned features; /* instruction sets that kernels may use: bits of resample_features() */
};

/* Number of floats that pixels_make() writes. */
size_t pixels_count(const struct vision_format *f, const struct vision_plan *p,
                    enum vision_layout layout);
/* Writes all crops to `out` in `layout`: the format's own, or another one that the tower prefers.
 * `picture` must have the plan's width, height and frames; of a video the layout is not PLANES.
 * `w` NULL: single-threaded, with all instruction sets of this CPU. Allocates 3 bytes per resized
 * pixel during the call. ERR_SYSTEM: out of memory. */
int pixels_make(const struct vision_format *f, const struct vision_plan *p,
                const struct image *picture, enum vision_layout layout,
                const struct pixels_workers *w, float *out, struct err *e);
#endif
