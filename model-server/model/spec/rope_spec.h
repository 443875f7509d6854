/* rope_spec.h - part of decoder_spec.h: rotary positions. */
#ifndef MODEL_SERVER_MODEL_ROPE_SPEC_H
#define MODEL_SERVER_MODEL_ROPE_SPEC_H
#include <stdbool.h>
#include <stdint.h>

enum { ROPE_MAX_DIM = 1024, ROPE_BY_PLACE = 3 };

enum rope_kind {
    ROPE_NONE,    /* learned positions or none */
    ROPE_DEFAULT, /* RoFormer, arXiv 2104.09864 */
    ROPE_LINEAR,  /* positions / factor, arXiv 2306.15595 */
    ROPE_DYNAMIC, /* the base grows with the length of the sequence (NTK) */
    ROPE_LLAMA3,  /* long wavelengths / factor, short ones kept, a ramp between */
    ROPE_YARN,    /* arXiv 2309.00071 */
    ROPE_PARTIAL, /* frequencies of the first `turning` elements; those of the others are 0 (Gemma
                     4) */
    ROPE_GRID,    /* `runs` runs of angles, of equal frequencies: an image's row and column
                     (Qwen2-VL, arXiv 2409.12191), or a video's frame, row and column */
    ROPE_GRID_TURNS, /* the same, with the even frequencies of `dim`, then the odd ones (Pixtral,
                        arXiv 2410.07073) */
    ROPE_GRID_WOVEN, /* column and row in turns, of equal frequencies (MoonViT, arXiv 2504.07491) */
    ROPE_LONGROPE,   /* two lists of factors, by the length of the sequence, arXiv 2402.13753 */
};
struct rope_spec {
    enum rope_kind kind;
    bool interleaved, backwards; /* backwards: by the negative angles */
    uint32_t dim;                /* rotated elements of a head, even */
    double theta;                /* base */
    double factor;               /* LINEAR, DYNAMIC, LLAMA3, YARN */
    uint32_t turning;            /* PARTIAL: of dim, even */
    uint32_t runs;               /* GRID: dim is a multiple of 2 * runs */
    double attention_factor;     /* multiplies cos and sin */
    uint32_t original; /* positions of the original training: DYNAMIC, LLAMA3, YARN, LONGROPE */
    double low_freq, high_freq;  /* LLAMA3 */
    double beta_fast, beta_slow; /* YARN */
    bool truncate;               /* YARN */
    /* Angle i uses position axis[i] of ragged.axes (t, h or w), or pos where it is ROPE_BY_PLACE,
     * as it is of some if `by_place`. Without has_axes all use pos. */
    bool has_axes, by_place;
    uint32_t behind; /* rows are of positions this much earlier, at least 0 */
    /* Each half of a head rotates separately, its first half with its second. The rows of q and k
     * and their norms are reordered at load such that the halves of the whole head rotate
     * together. */
    bool halves;
    bool learned; /* frequencies have factors: exp of stored numbers. Not with DYNAMIC */
    uint8_t axis[ROPE_MAX_DIM / 2];
    float short_factor[ROPE_MAX_DIM / 2], long_factor[ROPE_MAX_DIM / 2]; /* LONGROPE */
};
#endif
