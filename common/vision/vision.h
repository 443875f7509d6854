/* vision.h - what a picture becomes in a prompt, by model family.
 *
 * Pure: sizes in, sizes, tokens and positions out. The router counts and writes placeholders with
 * it; the model-server cuts pixels by the same plan (model-server/encoder). One file a family
 * (common/vision/<family>.c): adding a family adds a file and a row of the table in vision.c. The
 * values come from config.json, preprocessor_config.json and processor_config.json. */
#ifndef COMMON_VISION_VISION_H
#define COMMON_VISION_VISION_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct vision; /* immutable after load: any thread may use it */

/* Of a model's folder. *out is NULL, without an error, for a model that reads text only.
 * ERR_VALIDATION: it has a tower of a kind that is not known, or values that contradict. */
int vision_load(const char *dir, struct vision **out, struct err *e);
void vision_free(struct vision *v); /* NULL is fine */

/* The text that a chat template writes where a picture stands ("<|image_pad|>", "[IMG]" ...). */
const char *vision_marker(const struct vision *v);
/* The token whose rows of embeddings are replaced by features. */
uint32_t vision_token(const struct vision *v);
/* Tokens of one picture see each other both ways (gemma3): a step must not cut them apart. */
bool vision_two_way(const struct vision *v);
/* Three positions a token (M-RoPE). */
bool vision_three_positions(const struct vision *v);

enum vision_filter { VISION_BILINEAR, VISION_BICUBIC, VISION_LANCZOS };
/* One rectangle of pixels for the tower: the picture (or a part of it), resized, maybe padded. */
struct vision_crop {
    uint32_t from_x, from_y, from_w, from_h; /* of the resized picture `of` */
    uint32_t of;                             /* which of plan.resized */
};
struct vision_size {
    uint32_t width, height;
    int before; /* resized from this one of plan.resized; -1: from the picture */
    uint32_t cut_x, cut_y, cut_w, cut_h; /* of what it is resized from; cut_w 0: all of it */
    uint32_t pad_x, pad_y, pad_w, pad_h; /* black canvas around it; pad_w 0: none */
};
enum { VISION_MAX_SIZES = 12, VISION_MAX_CROPS = 64 };
struct vision_plan {
    uint32_t width, height; /* of the picture */
    struct vision_size resized[VISION_MAX_SIZES];
    uint32_t n_resized;
    struct vision_crop crops[VISION_MAX_CROPS]; /* in the order in which the tower gets them */
    uint32_t n_crops;
    uint32_t rows, cols;     /* tiles of the picture; 0: it is not cut */
    uint32_t grid_h, grid_w; /* of the features where the family has one grid a picture (M-RoPE) */
    uint32_t n_features;     /* rows that the tower gives, which is the number of vision_token()s */
};
/* ERR_VALIDATION: a picture that this family cannot take (too wide). */
int vision_plan(const struct vision *v, uint32_t width, uint32_t height, struct vision_plan *out,
                struct err *e);
/* Append the text that takes the marker's place. Tokenized with the text around it, it has exactly
 * plan.n_features tokens vision_token(). */
int vision_expand(const struct vision *v, const struct vision_plan *p, struct buf *out,
                  struct err *e);

/* A picture in a prompt: `first` .. `first + n` are its tokens, from its first vision_token() to
 * its last; others may stand between. */
struct vision_place {
    uint32_t first, n, grid_h, grid_w;
};
/* Position t, h, w of token i of a prompt whose pictures are place[0 .. n), ascending: M-RoPE
 * (arXiv 2409.12191). Tokens behind the prompt go on from its end. */
void vision_position(const struct vision_place *place, uint32_t n, uint32_t i, uint32_t out[3]);
#endif
