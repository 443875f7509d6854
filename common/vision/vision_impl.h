/* vision_impl.h - what vision.c and the families share. */
#ifndef COMMON_VISION_VISION_IMPL_H
#define COMMON_VISION_VISION_IMPL_H
#include "common/vision/vision.h"

struct vision_settings;

enum {
    VISION_TOKEN_TEXT = 64,     /* most bytes of a placeholder, and its end */
    VISION_MAX_SETTING = 16384, /* sides that files may name */
    VISION_MAX_PINPOINTS = 64,  /* shapes of tiles that llava_next chooses from */
    VISION_PAN_MAX_CROPS = VISION_MAX_RESIZES - 1
};

struct vision_qwen {
    uint64_t min_pixels, max_pixels;
};
struct vision_gemma3 {
    uint32_t side, tokens_side; /* of a crop in pixels; of its features */
    bool pan_and_scan;
    uint32_t min_crop, max_crops;
    double min_ratio;
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around the tokens of a crop */
    char soft[VISION_TOKEN_TEXT];
};
struct vision_llava {
    bool square;          /* llava: both sides become `shortest`, nothing is cut off */
    uint32_t shortest;    /* of what the picture is resized to */
    uint32_t tile;        /* of a crop, in pixels */
    uint32_t n_pinpoints; /* llava_next */
    struct {
        uint32_t height, width;
    } pinpoints[VISION_MAX_PINPOINTS];
};
struct vision_idefics3 {
    uint32_t longest, tile, tile_tokens;
    bool split;
};
struct vision_pixtral {
    uint32_t longest;
    char row_end[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
};
struct vision_paligemma {
    uint32_t side, tokens;
    char bos[VISION_TOKEN_TEXT]; /* behind the last picture */
};
struct vision_llama4 {
    uint32_t tile, tile_tokens, max_tiles;
    bool enlarge; /* to the largest canvas, not the least one that the picture fits in */
    char patch[VISION_TOKEN_TEXT];
};
struct vision_internvl {
    uint32_t tile, tile_tokens, min_tiles, max_tiles;
    bool thumbnail; /* several tiles are followed by the whole picture */
};

struct vision_family {
    const char *types[6]; /* model_type of config.json */
    const char *tower;    /* model_type of its vision_config; NULL: any */
    bool two_way, three_positions;
    bool prefix; /* the whole prompt is two-way, not its pictures alone */
    void (*load)(struct vision *v, struct vision_settings *s);
    /* `out` is zero but for its width and height; these are at least 1. Faults other than a picture
     * that cannot be taken are found by vision_plan(). */
    int (*plan)(const struct vision *v, struct vision_plan *out, struct err *e);
    void (*expand)(const struct vision *v, const struct vision_plan *p, struct buf *out);
    /* What stands behind the last picture of a prompt; NULL: nothing. See vision_frame(). */
    const char *(*behind)(const struct vision *v);
};
extern const struct vision_family vision_qwen, vision_gemma3, vision_llava, vision_llava_next,
    vision_idefics3, vision_pixtral, vision_internvl, vision_paligemma, vision_llama4;

struct vision {
    const struct vision_family *family;
    const char *name; /* that of family->types */
    struct vision_format format;
    uint32_t token;
    char marker[VISION_TOKEN_TEXT], around[3 * VISION_TOKEN_TEXT];
    union {
        struct vision_qwen qwen;
        struct vision_gemma3 gemma3;
        struct vision_llava llava;
        struct vision_idefics3 idefics3;
        struct vision_pixtral pixtral;
        struct vision_internvl internvl;
        struct vision_paligemma paligemma;
        struct vision_llama4 llama4;
    };
};

/* Each returns the number of what it adds. Beyond the bounds of a plan nothing is added, but
 * counted, so that vision_plan() can refuse it. */
uint32_t vision_add_resize(struct vision_plan *p, int32_t of, struct vision_rect cut,
                           uint32_t width, uint32_t height);
uint32_t vision_add_crop(struct vision_plan *p, uint32_t of, int64_t x, int64_t y);
/* Sets p->rows and p->cols and adds the tiles in raster order, the first at (x, y). */
void vision_add_tiles(struct vision_plan *p, uint32_t of, uint32_t rows, uint32_t cols, int64_t x,
                      int64_t y);
struct vision_rect vision_whole(const struct vision_plan *p); /* the picture */
void vision_repeat(struct buf *out, const char *text, uint64_t n);
#endif
