/* conv_shape.h - sizes of grids and of what steps of convolutions make of them. */
#ifndef MODEL_SERVER_ENCODER_CONV_SHAPE_H
#define MODEL_SERVER_ENCODER_CONV_SHAPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conv_shape {
    uint32_t height, width, channels;
};
static inline size_t conv_rows(struct conv_shape s) { return (size_t)s.height * s.width; }
static inline size_t conv_floats(struct conv_shape s) { return conv_rows(s) * s.channels; }

/* A square of places of the input for each place of the result, `stride` apart. The first begins
 * `above` rows and `left` columns outside the grid; places outside are zero. */
struct conv_window {
    uint32_t size, stride, above, left;
};
enum { CONV_MAX_SIZE = 16 }; /* of a window */
/* The window and the result's height and width over an input. `same`: the result has a place for
 * each `stride` places of the input, and padding is divided evenly, the larger half behind;
 * otherwise size / 2 zeros are on each side. */
struct conv_window conv_over(struct conv_shape in, uint32_t size, uint32_t stride, bool same,
                             struct conv_shape *out);

/* The grid in windows of size x size places, one after the other; those at the ends are filled with
 * zeros. Each is a row of the result, and its places are the columns. */
struct conv_shape conv_windows(struct conv_shape of, uint32_t size);
#endif
