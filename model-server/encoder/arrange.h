/* arrange.h - the order in which a tower has the patches of a crop, and where features go.
 *
 * Patches of one cell (what becomes one feature) stand next to each other, row by row; cells stand
 * row by row, or window by window. Pure. */
#ifndef MODEL_SERVER_ENCODER_ARRANGE_H
#define MODEL_SERVER_ENCODER_ARRANGE_H
#include "model-server/encoder/tower_impl.h"

/* A crop as patches. */
struct arrange_grid {
    uint32_t rows, cols;
};
struct arrange_grid arrange_grid(const struct encoder_spec *s, const struct vision_plan *p,
                                 uint32_t crop);
/* out[rows * cols]; with windows also what each belongs to, in mutual [rows * cols]. */
void arrange_places(const struct encoder_spec *s, struct arrange_grid g, struct tower_place *out,
                    struct mutual *mutual);
/* Copy patch `at` of crop `crop` to out[tower_patch_floats()]. */
void arrange_patch(const struct encoder_spec *s, const struct tower_image *image, uint32_t crop,
                   struct arrange_grid g, struct tower_place at, float *out);
/* What is added to the patch at `at`: out[hidden]. */
void arrange_added(const struct tower *t, struct arrange_grid g, struct tower_place at, float *out);
/* Which features of the picture the one of crop `crop` whose cell begins at `at` is part of: each
 * grows by its share. Without shrinking it is one, or none where it is padding. */
enum { ARRANGE_MOST_SHARES = 9 };
struct arrange_shares {
    uint32_t n, to[ARRANGE_MOST_SHARES];
    float by[ARRANGE_MOST_SHARES];
};
struct arrange_shares arrange_feature(const struct encoder_spec *s, const struct vision_plan *p,
                                      uint32_t crop, struct arrange_grid g, struct tower_place at);
/* The grid that joined tiles become. */
struct arrange_grid arrange_joined(const struct vision_plan *p);
/* The plan's features are as many as the tower gives, and its crops are whole cells. */
int arrange_check(const struct encoder_spec *s, const struct vision_plan *p, struct err *e);
#endif
