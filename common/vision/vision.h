/* vision.h - what a picture becomes in a prompt, by model family.
 *
 * Pure: sizes in, sizes, tokens and positions out. The router counts and writes placeholders with
 * it; the model-server cuts pixels by the same plan (model-server/encoder/pixels.h). One file a
 * family (common/vision/<family>.c): adding a family adds a file and a row of the table in
 * vision.c. The values come from config.json, preprocessor_config.json and processor_config.json;
 * what these do not say is the family's own, as on the hub.
 *
 * Checked against transformers: qwen2_5_vl, qwen3_vl, qwen3_5, gemma3, llava_next, idefics3,
 * smolvlm, mistral3, pixtral (llava with that tower), internvl, internvl_chat, paligemma,
 * llama4. From its
 * source, without data: qwen2_vl, llava 1.5. */
#ifndef COMMON_VISION_VISION_H
#define COMMON_VISION_VISION_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct tokenizer;
struct vision; /* immutable after load: any thread may use it */

/* Of a model's folder. *out is NULL, without an error, for a model that reads text only, that is a
 * GGUF file, or whose family is not in the table (its text model may still be served).
 * `t` is the model's tokenizer, or NULL: with it the texts of the placeholders are those of the
 * ids in config.json, and a placeholder that is not in the vocabulary is an error; without it they
 * are the family's. It need not outlive the call.
 * ERR_VALIDATION: values that contradict or are out of bounds; it names the file and the key. */
int vision_load(const char *dir, const struct tokenizer *t, struct vision **out, struct err *e);
void vision_free(struct vision *v); /* NULL is fine */

const char *vision_family(const struct vision *v); /* model_type: "qwen3_vl"; static */
/* The text that a chat template writes where a picture stands, which vision_expand() replaces
 * ("<|image_pad|>", "[IMG]" ...). It is the text of one token. */
const char *vision_marker(const struct vision *v);
/* The same with what a template puts around it: for prompts that no template wrote.
 * "<|vision_start|><|image_pad|><|vision_end|>"; in most families the marker alone. */
const char *vision_marker_around(const struct vision *v);
/* The token whose rows of embeddings are replaced by features. */
uint32_t vision_token(const struct vision *v);
/* Tokens of one picture see each other both ways (gemma3): a step must not cut them apart. Those
 * are the runs of vision_token() that nothing interrupts; a picture with crops has several. */
bool vision_two_way(const struct vision *v);
/* All tokens of a prompt with pictures see each other both ways (paligemma), its text too; what is
 * generated sees only what is before it. vision_two_way() is true as well. */
bool vision_prefix(const struct vision *v);
/* Three positions a token (M-RoPE). */
bool vision_three_positions(const struct vision *v);

enum vision_filter { VISION_BILINEAR, VISION_BICUBIC, VISION_LANCZOS };
/* How a number of a crop is laid out for the tower; P = patch, M = merge. */
enum vision_layout {
    /* [crops][3][height][width] */
    VISION_PLANES,
    /* [crops][patches][3][frames][P][P]: the rows that a patch embedding multiplies with. Patches
     * are in raster order. */
    VISION_PATCHES,
    /* The same, where patches of one feature lie side by side: [height / PM][width / PM][M][M] */
    VISION_PATCHES_BY_FEATURE
};
/* What becomes of the bytes of a crop. The number for byte b of channel c is, as a double and then
 * a float, b * rescale; then, in float, (that - mean[c]) / std[c]. */
struct vision_format {
    enum vision_filter filter;
    double rescale;
    float mean[3], std[3];     /* 0 and 1 where nothing is normalised */
    uint32_t patch;            /* side of the tower's patches, in pixels */
    uint32_t merge;            /* patches a side that become one feature; 1: each one */
    uint32_t frames;           /* how often a row of patches holds the picture: Qwen 2, others 1 */
    enum vision_layout layout; /* of the family's own image processor */
    bool bf16;                 /* every result above is rounded to bfloat16 (llama4) */
};
const struct vision_format *vision_format(const struct vision *v); /* lives as long as v */

struct vision_rect {
    uint32_t x, y, width, height;
};
/* A rectangle of a picture, resized as Pillow does: the rectangle is a picture of its own. */
struct vision_resize {
    int32_t of;             /* an earlier one of plan.resizes; -1: the picture */
    struct vision_rect cut; /* of that, in pixels */
    /* What it becomes. Only the part that crops and later resizes use need be computed: llava's
     * may be far larger. */
    uint32_t width, height;
};
/* plan.crop_width x plan.crop_height pixels of a resized picture, from (x, y) on, which may be
 * outside: pixels out there are black, and are normalised as others. */
struct vision_crop {
    uint32_t of; /* which of plan.resizes */
    int32_t x, y;
};
/* Sides of a picture that a plan is made for, and of a crop. */
enum { VISION_MAX_SIDE = 65535, VISION_MAX_CROP_SIDE = 65536 };
/* Numbers of a picture without `frames`, 3 a pixel: that many pixels of all crops together. */
enum { VISION_MAX_PIXELS = 1 << 26 };
enum { VISION_MAX_RESIZES = 8, VISION_MAX_CROPS = 64 };
struct vision_plan {
    uint32_t width, height; /* of the picture */
    struct vision_resize resizes[VISION_MAX_RESIZES];
    uint32_t n_resizes;
    struct vision_crop crops[VISION_MAX_CROPS]; /* in the order in which the tower gets them */
    uint32_t n_crops;
    uint32_t crop_width, crop_height; /* of each, multiples of the patch */
    /* Tiles of the picture that are cut from one resize; 0: it is one crop. The crop that shows the
     * whole picture is the first (llava_next, gemma3) or the last (idefics3, internvl). */
    uint32_t rows, cols;
    /* Features of the picture as a grid: of Qwen's and Pixtral's only crop, of a crop elsewhere.
     * llava_next, whose picture is cut: of the tiles joined, from (grid_y, grid_x) on, where
     * features of padding begin to be left out at each side. */
    uint32_t grid_h, grid_w, grid_y, grid_x;
    uint32_t n_features; /* rows that the tower gives, which is the number of vision_token()s */
};
/* ERR_VALIDATION: a picture that this family cannot take (too wide), or no side or beyond
 * VISION_MAX_SIDE. Takes constant time and allocates nothing. */
int vision_plan(const struct vision *v, uint32_t width, uint32_t height, struct vision_plan *out,
                struct err *e);
/* Append the text that takes the marker's place. Tokenized with the text around it, it has exactly
 * plan.n_features tokens vision_token(). Memory: see out->oom. */
void vision_expand(const struct vision *v, const struct vision_plan *p, struct buf *out);

/* What a prompt with pictures has beside their placeholders: a text behind the last picture, and
 * one at the end of the prompt. Empty in most families. */
struct vision_frame {
    const char *behind, *end; /* live as long as v */
    bool bare;                /* the tokenizer adds no special tokens of its own to such a prompt */
};
struct vision_frame vision_frame(const struct vision *v);

/* A picture in a prompt: `first` .. `first + n` are its tokens, from its first vision_token() to
 * its last; others may stand between. grid_h * grid_w = n where there are three positions. */
struct vision_place {
    uint32_t first, n, grid_h, grid_w;
};
/* Position t, h, w of token i of a prompt whose pictures are place[0 .. n), ascending: M-RoPE
 * (arXiv 2409.12191). Tokens behind the last picture, also generated ones, go on from its end. */
void vision_position(const struct vision_place *place, uint32_t n, uint32_t i, uint32_t out[3]);
/* What is added to the index of a token behind the last picture: rope_delta, never positive. */
int32_t vision_position_delta(const struct vision_place *place, uint32_t n);
#endif
