/* grids.h - the grid points of ggml's IQ types.
 *
 * Runs of eight or of four numbers are stored as the index of a point in a list. The list was
 * chosen when the format was designed (ggml-common.h) and cannot be computed. A point contains the
 * codes of its numbers, the first in the lowest bits: eight of 2 bits, or four of 3. The table of
 * the format (format.c) defines the values of codes. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_QUANT_GRIDS_H
#define MODEL_SERVER_MODEL_CHECKPOINT_QUANT_GRIDS_H
#include <stdint.h>

extern const uint16_t grid_iq2_xxs[256], grid_iq2_xs[512], grid_iq2_s[1024], grid_iq3_xxs[256],
    grid_iq3_s[512], grid_iq1[2048];
#endif
