/* arrange.h - the order of a crop's patches in a tower, and the places of their features.
 *
 * Patches of one cell, which become one feature, are adjacent, row by row. Cells are in raster
 * order, or window by window. Pure functions of the spec and the plan; outputs are the caller's. */
#ifndef MODEL_SERVER_ENCODER_ARRANGE_H
#define MODEL_SERVER_ENCODER_ARRANGE_H
#include "model-server/encoder/tower_impl.h"

/* A crop in patches. */
struct arrange_grid {
    uint32_t rows, cols;
};
/* The grid of crop number `crop` of the plan. */
struct arrange_grid arrange_grid(const struct encoder_spec *s, const struct vision_plan *p,
                                 uint32_t crop);
/* The number of patches in whole cells: all of them, unless the spec leaves a rest. */
uint32_t arrange_whole(const struct encoder_spec *s, struct arrange_grid g);
/* The number of rows that follow the crop's patches in the transformer, and the table of them. */
uint32_t arrange_queries(const struct encoder_spec *s, struct arrange_grid g, uint32_t *table);
/* Writes the places of the crop's patches in the tower's order to out[rows * cols]. If the tower
 * has windows or queries, also writes the range of rows that each patch attends to, and then each
 * query, to mutual[]. */
void arrange_places(const struct encoder_spec *s, struct arrange_grid g, struct tower_place *out,
                    struct mutual *mutual);
/* Copies the pixels of the patch at `at` of crop `crop` to out[tower_patch_floats()]. */
void arrange_patch(const struct encoder_spec *s, const struct tower_image *image, uint32_t crop,
                   struct arrange_grid g, struct tower_place at, float *out);
/* Writes to out[hidden] what is added to the embedding of the patch at `at`: its position, and the
 * bias of the patches' matrix (positions.c). */
void arrange_added(const struct tower *t, struct arrange_grid g, struct tower_place at, float *out);
/* The features of a picture to which one feature of a crop contributes: feature to[i] grows by
 * by[i] times it. Without shrinking n is 1, or 0 if the feature is padding. */
enum { ARRANGE_MOST_SHARES = 9 };
struct arrange_shares {
    uint32_t n, to[ARRANGE_MOST_SHARES];
    float by[ARRANGE_MOST_SHARES];
};
/* The shares of the feature of crop `crop` whose cell begins at the patch `at`; with mean_features
 * those of this patch. */
struct arrange_shares arrange_feature(const struct encoder_spec *s, const struct vision_plan *p,
                                      uint32_t crop, struct arrange_grid g, struct tower_place at);
/* The size in features of the grid into which tiles are joined. */
struct arrange_grid arrange_joined(const struct vision_plan *p);
/* Features of the joined tiles with the ends of their rows; 0 without tiles. */
uint32_t arrange_tiles(const struct vision_plan *p);
/* 0 if the tower computes n_features of this plan, and its crops are whole cells that have learned
 * positions. Otherwise ERR_VALIDATION. */
int arrange_check(const struct encoder_spec *s, const struct vision_plan *p, struct err *e);
#endif
