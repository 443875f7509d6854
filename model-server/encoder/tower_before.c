/* tower_before.c - a tower that reads the features of another one: MiniCPM-V 4.6, whose patches
 * become fewer between two layers.
 *
 * The first tower encodes all pictures of a call. Its features are in host memory, so the order of
 * rows in the two is independent. Then the second one reads them: each is a patch of one pixel. */
#include "model-server/encoder/tower_impl.h"
#include <stdlib.h>

void tower_before_plans(const struct tower *t, const struct vision_plan *p,
                        struct vision_plan *before, struct vision_plan *own)
{
    const uint32_t unit = encoder_unit(&t->before.tower->spec);
    *before = *own = *p;
    before->n_features = 0;
    const bool list = t->spec.conv.list, more = t->before.tower->spec.keeps_class;
    own->crop_width /= unit;
    own->crop_height /= unit;
    for (uint32_t i = 0; i < p->n_crops && i < VISION_MAX_CROPS; i++) {
        own->crops[i].width = vision_crop_width(p, i) / unit;
        own->crops[i].height = vision_crop_height(p, i) / unit;
        if (list) {
            own->crops[i].height = own->crops[i].width * own->crops[i].height + more;
            own->crops[i].width = 1;
        }
        before->n_features += own->crops[i].width * own->crops[i].height;
    }
}

static int reserve(struct tower_before *b, uint32_t n, struct err *e)
{
    b->plans = calloc(2 * (size_t)n, sizeof(*b->plans));
    b->images = calloc(2 * (size_t)n, sizeof(*b->images));
    return b->plans && b->images ? 0 : err_nomem(e);
}

int tower_before_begin(struct tower *t, const struct tower_image *images, uint32_t n,
                       const struct tower_image **own, struct err *e)
{
    struct tower_before *b = &t->before;
    size_t rows = 0;
    tower_before_end(t);
    if (reserve(b, n, e))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        tower_before_plans(t, images[i].plan, &b->plans[i], &b->plans[n + i]);
        rows += b->plans[i].n_features;
    }
    float *at = b->rows = malloc(rows * tower_row(b->tower) * sizeof(*at));
    if (!at)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++) {
        b->images[i] = (struct tower_image){&b->plans[i], images[i].pixels, images[i].layout, at};
        b->images[n + i] =
            (struct tower_image){&b->plans[n + i], at, VISION_PATCHES, images[i].out};
        at += (size_t)b->plans[i].n_features * tower_row(b->tower);
    }
    *own = b->images + n;
    return tower_begin(b->tower, b->images, n, e);
}

void tower_before_end(struct tower *t)
{
    struct tower_before *b = &t->before;
    if (b->tower)
        tower_stop(b->tower);
    free(b->plans), free(b->images), free(b->rows);
    b->plans = NULL;
    b->images = NULL;
    b->rows = NULL;
}
