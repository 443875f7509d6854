/* vision_impl.h - private: shared by vision.c and the families. */
#ifndef COMMON_VISION_VISION_IMPL_H
#define COMMON_VISION_VISION_IMPL_H
#include "common/vision/vision.h"

struct vision_settings;

enum {
    VISION_TOKEN_TEXT = 64,     /* maximum bytes of a placeholder with its NUL */
    VISION_MAX_SETTING = 16384, /* largest side in a settings file */
    VISION_MAX_TYPES = 10,      /* model_type words of a family */
    VISION_MAX_PINPOINTS = 64,  /* maximum tile shapes of llava_next */
    VISION_PAN_MAX_CROPS = 7
};

struct vision_qwen {
    uint64_t min_pixels, max_pixels;
    uint32_t frames;   /* an image is this many frames of a video to these bounds */
    uint32_t features; /* sides are multiples of this many features' */
    bool any_aspect;   /* the longer side may be more than 200 times the other */
    /* How sides first grow to that of a feature, `f`; NULL: they do not. */
    void (*enlarge)(double f, double *h, double *w);
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around an image; "": templates do */
    char pad[VISION_TOKEN_TEXT]; /* text of vision_token(), where it is not the marker; "" */
    struct {
        uint64_t min_pixels, max_pixels;
        bool all_frames; /* these are bounds of all frames together, not of one */
        /* positions per second; 0: one position per grid */
        uint32_t positions_per_second;
        /* Frames that are apart have their time as text: before the frame or behind it. */
        enum vision_time { VISION_TIME_BEFORE, VISION_TIME_BEHIND, VISION_TIME_WHOLE_BEHIND } time;
        char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around a frame */
    } video;
};
struct vision_glm5 {
    uint32_t min_tokens, max_tokens; /* features of an image */
};
struct vision_step3 {
    uint32_t whole, tile; /* sides of the crop of the whole image, and of one of a tile */
    uint32_t most;        /* longest side of an image, in pixels */
};
struct vision_muse {
    uint32_t most; /* features of an image */
};
struct vision_gemma3 {
    uint32_t side, tokens_side; /* of a crop, in pixels; of its features */
    bool pan_and_scan;
    uint32_t min_crop, max_crops;
    double min_ratio;
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around the tokens of a crop */
    char soft[VISION_TOKEN_TEXT];
};
struct vision_llava {
    bool square;          /* llava, got_ocr2: both sides become `shortest`, without cropping */
    bool padded;          /* llava: the image is first padded to a square with the mean colour */
    uint32_t shortest;    /* target size of the resize */
    uint32_t tile;        /* side of a crop, in pixels */
    uint32_t class_rows;  /* llava: 1 if the class token is a feature before those of patches */
    uint32_t most_tiles;  /* llava_onevision: more features than these have are interpolated */
    uint32_t n_pinpoints; /* llava_next, llava_onevision */
    struct {
        uint32_t height, width;
    } pinpoints[VISION_MAX_PINPOINTS];
};
struct vision_idefics3 {
    uint32_t longest, longest_of_frame; /* sides of an image, and of a video's frame */
    uint32_t tile, tile_tokens;
    bool split;
};
struct vision_idefics2 {
    uint32_t shortest, longest, latents;
    bool split;
};
struct vision_pixtral {
    uint32_t longest, unit; /* sides are multiples of `unit` */
    char row_end[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
};
struct vision_kimi {
    uint32_t most_patches, most_side; /* of a side, in patches; 0: no limit but that of patches */
};
struct vision_lfm2 {
    uint32_t tile, min_tiles, max_tiles, min_tokens, max_tokens;
    double tolerance; /* an image of this many times max_tokens is cut into tiles */
    bool split, thumbnail;
    bool marked; /* tokens around an image and before tiles */
};
struct vision_minicpmv {
    uint32_t side, max_slices;     /* of a square with the pixels of a slice */
    bool enlarge;                  /* an image that is not cut gets as many pixels */
    bool numbered;                 /* each image of a prompt has its number before it */
    uint32_t latents;              /* features of the whole image, or of a slice; 0: of its size */
    char patch[VISION_TOKEN_TEXT]; /* text of vision_token() */
    uint32_t around[5]; /* vision_canvas(): ids of what begins and ends images, slices and rows */
};
struct vision_ovis2 {
    uint32_t tile, tile_tokens, min_tiles, max_tiles;
    bool covering; /* the smallest grid whose tiles see enough of the image, not the nearest */
    char patch[VISION_TOKEN_TEXT]; /* text of vision_token() */
};
struct vision_janus {
    uint32_t side, least; /* of the square; of a resized image's shorter side */
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around an image; "" without */
};
struct vision_perception_lm {
    uint32_t tile, max_tiles;
    bool tiled; /* false: only the whole image */
};
struct vision_paligemma {
    uint32_t side, tokens;
    char bos[VISION_TOKEN_TEXT]; /* after the last image */
};
struct vision_blip2 {
    uint32_t side, tokens;
    char bos[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT]; /* around the text; "" without */
};
struct vision_florence2 {
    uint32_t side, tokens;
    char bos[VISION_TOKEN_TEXT], eos[VISION_TOKEN_TEXT]; /* around the text */
};
struct vision_aria {
    uint32_t side, least, tokens; /* of the longer side; the shorter one is at least `least` */
};
struct vision_llama4 {
    uint32_t tile, tile_tokens, max_tiles;
    bool enlarge; /* use the largest canvas, not the smallest that holds the image */
    char patch[VISION_TOKEN_TEXT];
};
struct vision_mllama {
    uint32_t tile, max_tiles;
};
struct vision_gemma4 {
    uint32_t most_features, most_of_frame; /* of an image, and of a video's frame */
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
};
struct vision_nemotron {
    uint32_t min_patches, max_patches; /* of an image */
};
struct vision_deepseek_ocr {
    uint32_t side, tile; /* of the square with the whole image; of a tile */
    uint32_t min_tiles, max_tiles;
    bool tiled; /* false: only the whole image, in a square of a tile */
};
struct vision_internvl {
    uint32_t tile, tile_tokens, min_tiles, max_tiles;
    char patch[VISION_TOKEN_TEXT]; /* text of vision_token() */
    bool thumbnail;                /* several tiles are followed by the whole image */
    /* granite_docling: the largest number of tiles, 0: max_tiles, of images whose width / height is
     * above the first and at most the second (0: any), and that max_tiles would shrink below
     * dense_scale */
    uint32_t dense_tiles;
    double dense_least, dense_most, dense_scale;
};

/* A family: const struct vision_family vision_NAME = ..., by which the build lists it. */
struct vision_family {
    const char *types[VISION_MAX_TYPES]; /* model_type of config.json */
    const char *tower; /* model_name or model_type of its vision_config; NULL: any */
    bool two_way, three_positions;
    bool crosses, alone;
    bool canvas; /* vision_canvas() */
    bool prefix; /* the whole prompt attends in both directions, not only images */
    void (*load)(struct vision *v, struct vision_settings *s);
    /* `out` is zeroed except for width and height, which are at least 1. vision_plan() checks
     * everything else; return an error only for an unsupported image. */
    int (*plan)(const struct vision *v, struct vision_plan *out, struct err *e);
    /* The same for a video: frames and fps are filled, too. NULL: it takes none. */
    int (*plan_video)(const struct vision *v, struct vision_plan *out, struct err *e);
    /* vision_interval() of a video; NULL: 1. */
    float (*interval)(const struct vision *v, const struct vision_plan *p);
    /* vision_position(); NULL: M-RoPE. */
    void (*position)(const struct vision_place *place, uint32_t n, uint32_t i, uint32_t out[3]);
    /* vision_expand(); NULL: the marker for each feature. */
    void (*expand)(const struct vision *v, const struct vision_plan *p, struct buf *out);
    /* The same for a video. */
    void (*expand_video)(const struct vision *v, const struct vision_plan *p, struct buf *out);
    /* Text before image number `nth` of a prompt; NULL: none. */
    void (*number)(const struct vision *v, uint32_t nth, struct buf *out);
    struct vision_frame (*frame)(const struct vision *v); /* NULL: an empty one */
    /* vision_text(); NULL: the text is kept. */
    int (*text)(const struct vision *v, const char *text, size_t n, struct buf *out, struct err *e);
};
struct vision {
    const struct vision_family *family;
    const char *name; /* one of family->types */
    struct vision_format format;
    bool two_way; /* family->two_way, unless the files say otherwise */
    uint32_t token;
    char marker[VISION_TOKEN_TEXT], around[5 * VISION_TOKEN_TEXT];
    struct {
        bool taken; /* the model takes videos; otherwise the rest is empty */
        bool apart; /* vision_frames_apart() */
        uint32_t token;
        struct vision_format format; /* vision_format_of() a video */
        char pad[VISION_TOKEN_TEXT]; /* the token's text */
        char marker[3 * VISION_TOKEN_TEXT], around[3 * VISION_TOKEN_TEXT];
    } video;
    union {
        struct vision_qwen qwen;
        struct vision_glm5 glm5;
        struct vision_muse muse;
        struct vision_gemma3 gemma3;
        struct vision_gemma4 gemma4;
        struct vision_llava llava;
        struct vision_idefics2 idefics2;
        struct vision_idefics3 idefics3;
        struct vision_pixtral pixtral;
        struct vision_janus janus;
        struct vision_deepseek_ocr deepseek_ocr;
        struct vision_minicpmv minicpmv;
        struct vision_nemotron nemotron;
        struct vision_step3 step3;
        struct vision_ovis2 ovis2;
        struct vision_kimi kimi;
        struct vision_lfm2 lfm2;
        struct vision_internvl internvl;
        struct vision_perception_lm perception_lm;
        struct vision_paligemma paligemma;
        struct vision_blip2 blip2;
        struct vision_aria aria;
        struct vision_florence2 florence2;
        struct vision_llama4 llama4;
        struct vision_mllama mllama;
    };
};

/* Each returns the index of the added element. Beyond a plan's limits nothing is stored, but
 * counted, so that vision_plan() can refuse it. */
uint32_t vision_add_resize(struct vision_plan *p, int32_t of, struct vision_rect cut,
                           uint32_t width, uint32_t height);
uint32_t vision_add_crop(struct vision_plan *p, uint32_t of, int64_t x, int64_t y);
/* A size of its own for a crop that was added. */
void vision_size_crop(struct vision_plan *p, uint32_t crop, uint32_t width, uint32_t height);
/* Sets p->rows and p->cols and adds the tiles in raster order, the first at (x, y), `stride` pixels
 * apart. */
void vision_add_tiles(struct vision_plan *p, uint32_t of, uint32_t rows, uint32_t cols,
                      uint32_t stride, int64_t x, int64_t y);
struct vision_rect vision_whole(const struct vision_plan *p); /* the whole image, or canvas */
/* The smallest square canvas, with the image in its middle; none for a square image. */
void vision_square_canvas(struct vision_plan *p);
/* The grid of tiles whose aspect ratio is nearest to that of w x h pixels, by ascending number of
 * tiles. Of equally near ones the later is chosen while it covers less than twice the image's
 * area. */
struct vision_grids {
    uint32_t tile, min_tiles, max_tiles;
    uint32_t most_side; /* tiles; 0: any number */
};
void vision_nearest_grid(const struct vision_grids *f, double w, double h, uint32_t *cols,
                         uint32_t *rows);
/* The plan of v->internvl with this grid of tiles. */
void vision_plan_tiles(const struct vision *v, uint32_t rows, uint32_t cols,
                       struct vision_plan *out);
/* The same with the nearest of these grids. */
void vision_plan_grid(const struct vision *v, const struct vision_grids *g,
                      struct vision_plan *out);
/* The plan of v->internvl. */
int vision_plan_internvl(const struct vision *v, struct vision_plan *out, struct err *e);
void vision_repeat(struct buf *out, const char *text, uint64_t n);
/* A crop for each frame of a video whose first crop was added; the crops' features follow each
 * other. */
void vision_add_frames(struct vision_plan *p);
#endif
