/* vision.h - how an image is resized, split and tokenized in a prompt, by model family.
 *
 * Pure: sizes in; sizes, tokens and positions out. The router uses it to count and write
 * placeholders, the model-server to prepare pixels by the same plan
 * (model-server/encoder/pixels.h). Each family is a row in a file (common/vision/<family>.c), which
 * the build lists. Values come from config.json, preprocessor_config.json and
 * processor_config.json, with the family's defaults.
 *
 * Tested against transformers: qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, gemma3,
 * gemma3n, gemma4, gemma4_unified, llava 1.5, llava_next, llava_onevision, idefics3, smolvlm,
 * mistral3, pixtral (llava with that tower), internvl, internvl_chat, paligemma, llama4,
 * aya_vision, cohere2_vision, mllama, glm4v, glm4v_moe, glm_ocr, qianfan_ocr, exaone4_5,
 * hyperclovax_vision_v2, llava and llava_next with SigLIP, vipllava, video_llava, perception_lm,
 * pp_chart2table, fast_vlm, got_ocr2, janus, deepseek_vl, qwen2_5_omni, qwen3_omni_moe,
 * paddleocr_vl, kimi_k25, lighton_ocr, lfm2_vl, idefics2, minicpmv4_6, minicpm_ocr, ovis2,
 * llava_next_video, video_llama_3, minimax_m3_vl, deepseek_vl_v2, deepseek_ocr2, glmga, blip-2,
 * aria, florence2, cosmos3_edge, glm5_next, cohere_compass, muse_glimmer, muse_spark,
 * hy_v4_vl, ernie4_5_vl_moe, granite_docling, nemotron_h_omni, shieldgemma2, clip, siglip,
 * mistral_large4, minicpmv4_7, lfm3_vl, step3p7, qwen4_exp. Against descriptions of their authors'
 * code: dots_ocr, minicpmv, NemotronH_Nano_VL_V2, ovis2_5. Against the classes of relatives, under
 * the names and keys of their authors: interns1, skywork_chat, step_robotics, opencua, R, bee,
 * Keye, KeyeVL1_5. kimi_vl: the tower against that of kimi_k25, pixels against the processor of its
 * authors. */
#ifndef COMMON_VISION_VISION_H
#define COMMON_VISION_VISION_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct tokenizer;
struct vision; /* immutable after load: any thread may use it */

/* Loads the settings of a model's folder. *out is NULL, without an error, for a text-only model, a
 * GGUF file without a projector, or an unsupported family (whose text model may still be served).
 * `t`: the model's tokenizer, or NULL. With it, placeholder texts are those of the ids in
 * config.json, and a placeholder missing in the vocabulary is an error; without it, they are the
 * family's. It need not outlive the call. ERR_VALIDATION names the file and the key of an invalid
 * value. */
int vision_load(const char *dir, const struct tokenizer *t, struct vision **out, struct err *e);
void vision_free(struct vision *v); /* NULL is allowed */

const char *vision_family(const struct vision *v); /* model_type: "qwen3_vl"; static */
/* The text a chat template writes for an image, which vision_expand() replaces ("<|image_pad|>",
 * "[IMG]" ...). It is one token. */
const char *vision_marker(const struct vision *v);
/* The marker with the text that templates put around it, for prompts without a template.
 * "<|vision_start|><|image_pad|><|vision_end|>"; in most families only the marker. */
const char *vision_marker_around(const struct vision *v);
/* The token whose embeddings are replaced by image features. */
uint32_t vision_token(const struct vision *v);
/* Tokens of an image attend to each other in both directions (gemma3), so no step may split them.
 * These are the uninterrupted runs of vision_token(); an image with crops has several. */
bool vision_two_way(const struct vision *v);
/* All tokens of a prompt with images, including text, attend to each other in both directions
 * (paligemma); generated tokens attend causally. vision_two_way() is true as well. */
bool vision_prefix(const struct vision *v);
/* An image is one token, which stands for all of its features: layers of their own read these as
 * keys and values for the token and what follows it (mllama). */
bool vision_crosses(const struct vision *v);
/* No text stands beside an image: its only feature is its vector, which the tower computes alone
 * (CLIP, SigLIP). The marker is no text of the tokenizer then. */
bool vision_alone(const struct vision *v);
/* Three position coordinates per token (M-RoPE). */
bool vision_three_positions(const struct vision *v);
/* Tokens around an image, its tiles and their rows have coordinates on the image's canvas
 * (MiniCPM-V 4.7), and vision_belongs() says which ids these have. Text must follow such an image:
 * whether a newline belongs to it is known of the prompt's tokens only. */
bool vision_canvas(const struct vision *v);
bool vision_belongs(const struct vision *v, uint32_t id);
/* Whether videos are supported, and then what stands for one in a prompt: its marker, that with the
 * text that templates put around it, and the token of its features. */
bool vision_takes_videos(const struct vision *v);
const char *vision_video_marker(const struct vision *v);
const char *vision_video_around(const struct vision *v);
uint32_t vision_video_token(const struct vision *v);
/* Tokens of a video's frames are not adjacent: text stands between them, and each run of tokens is
 * a vision_place of its own (Qwen3-VL). Otherwise all of them are one. */
bool vision_frames_apart(const struct vision *v);
/* The largest number of frames of a video; 0 without vision_takes_videos(). */
uint32_t vision_most_frames(const struct vision *v);

enum vision_filter {
    VISION_BILINEAR,
    VISION_BICUBIC,
    VISION_LANCZOS,
    VISION_NEAREST,
    VISION_BOX,
    VISION_HAMMING
};
/* Memory layout of a crop for the tower; P = patch, M = merge. */
enum vision_layout {
    /* [crops][3][height][width] */
    VISION_PLANES,
    /* [crops][patches][3][frames][P][P]: input rows of a patch embedding. Patches in raster
     * order. */
    VISION_PATCHES,
    /* As PATCHES, with patches of one feature adjacent: [height / PM][width / PM][M][M] */
    VISION_PATCHES_BY_FEATURE
};
/* Normalisation of a crop's bytes. Byte b of channel c becomes, in double and then float, b *
 * rescale; then, in float, (that - mean[c]) / std[c]. */
struct vision_format {
    enum vision_filter filter;
    double rescale;
    float mean[3], std[3];     /* 0 and 1 without normalisation */
    uint32_t patch;            /* side of the tower's patches, in pixels */
    uint32_t merge;            /* patches per side merged into one feature; 1: none */
    uint32_t frames;           /* repetitions of the image in a row of patches: Qwen 2, others 1 */
    enum vision_layout layout; /* of the family's own image processor */
    uint8_t outside[3];        /* bytes of pixels of a crop that are outside its image: black */
    bool bf16;                 /* each intermediate result is rounded to bfloat16 (llama4) */
};
const struct vision_format *vision_format(const struct vision *v); /* lives as long as v */

struct vision_rect {
    uint32_t x, y, width, height;
};
/* Resizes a rectangle of an image as Pillow does, as if it were an image of its own. */
struct vision_resize {
    int32_t of;             /* index of an earlier resize; -1: the original image, or the canvas */
    struct vision_rect cut; /* rectangle in its source, in pixels */
    /* Target size. Only the part used by crops and later resizes must be computed: llava's target
     * may be far larger. */
    uint32_t width, height;
};
/* A crop of vision_crop_width() x vision_crop_height() pixels of a resized image, at (x, y). Pixels
 * outside are format.outside, and normalised like others. */
struct vision_crop {
    uint32_t of; /* index in plan.resizes */
    int32_t x, y;
    uint32_t width, height; /* if it has a size of its own (lfm2_vl, minicpmv4_6); 0: the plan's */
};
/* Maximum sides of an image, and of a crop. */
enum { VISION_MAX_SIDE = 65535, VISION_MAX_CROP_SIDE = 65536 };
/* Limit on the pixels of all crops together (3 values each, without `frames`), and of a canvas. */
enum { VISION_MAX_PIXELS = 1 << 26 };
enum { VISION_MAX_RESIZES = 66, VISION_MAX_CROPS = 64 };
/* Tiles behind an image: how many, and the features of one. */
struct vision_tiles {
    uint32_t rows, cols, height, width;
};
struct vision_plan {
    uint32_t width, height; /* of the image, or of a frame */
    /* Of a video, otherwise 0. Crop i is made of its frames from i * format.frames on, and of
     * copies of the last one behind it. */
    uint32_t frames;
    double fps;
    /* A canvas of format.outside with the image at (x, y), which is then resized instead of the
     * image: rectangles without a source are of it. Width 0: there is none. */
    struct vision_rect canvas;
    struct vision_resize resizes[VISION_MAX_RESIZES];
    uint32_t n_resizes;
    struct vision_crop crops[VISION_MAX_CROPS]; /* in the order of the tower's input */
    uint32_t n_crops;
    uint32_t crop_width, crop_height; /* of those without their own; multiples of the patch */
    /* Tiles cut from one resize; 0: a single crop. A crop of the whole image comes first
     * (llava_next, gemma3) or last (idefics3, internvl). */
    uint32_t rows, cols;
    /* Feature grid: of the only crop (Qwen, Pixtral; hunyuan_vl: with the ends of its rows), or of
     * one crop. llava_next with tiles: of the
     * joined tiles, starting at (grid_y, grid_x), without features of padding on each side. */
    uint32_t grid_h, grid_w, grid_y, grid_x;
    struct vision_tiles tiles; /* with vision_canvas() */
    /* llava_onevision: the joined grid is interpolated to this smaller one; 0: it is not */
    uint32_t shrunk_h, shrunk_w;
    uint32_t n_features; /* rows of the tower's output */
    uint32_t n_tokens;   /* the number of vision_token()s: n_features, or 1 if vision_crosses() */
};
static inline uint32_t vision_crop_width(const struct vision_plan *p, uint32_t crop)
{
    return p->crops[crop].width ? p->crops[crop].width : p->crop_width;
}
static inline uint32_t vision_crop_height(const struct vision_plan *p, uint32_t crop)
{
    return p->crops[crop].height ? p->crops[crop].height : p->crop_height;
}
/* Pixels of the crops before `crop`. */
static inline uint64_t vision_pixels_before(const struct vision_plan *p, uint32_t crop)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < crop && i < VISION_MAX_CROPS; i++)
        n += (uint64_t)vision_crop_width(p, i) * vision_crop_height(p, i);
    return n;
}
/* ERR_VALIDATION: an image that the family does not support (too wide), without a side, or beyond
 * VISION_MAX_SIDE. Constant time, no allocation. */
int vision_plan(const struct vision *v, uint32_t width, uint32_t height, struct vision_plan *out,
                struct err *e);
/* The same for a video of frames of one size, with vision_takes_videos(). A frame may be taken more
 * than once. ERR_VALIDATION: also for too many or too few frames. */
struct vision_video {
    uint32_t width, height, frames;
    double fps; /* frames per second; at least 1e-6 */
};
int vision_plan_video(const struct vision *v, const struct vision_video *video,
                      struct vision_plan *out, struct err *e);
/* The format of a plan's pixels: that of images or videos, which differ in means and filter. */
const struct vision_format *vision_format_of(const struct vision *v, const struct vision_plan *p);
/* The token of a plan's features. */
uint32_t vision_token_of(const struct vision *v, const struct vision_plan *p);
/* Appends the text that replaces the marker of image or video `nth` of a prompt, from 0. Tokenized
 * in context, it has exactly plan.n_tokens tokens vision_token_of(). Out of memory: see out->oom.
 */
void vision_expand(const struct vision *v, const struct vision_plan *p, uint32_t nth,
                   struct buf *out);

/* Extra text of a prompt with images: after the last image, and at the end of the prompt. Empty in
 * most families. */
struct vision_frame {
    const char *behind, *end; /* live as long as v */
    bool bare;                /* the tokenizer adds no special tokens to such a prompt */
    bool first;               /* images precede all text, wherever the request has them */
};
struct vision_frame vision_frame(const struct vision *v);
/* Appends what is read instead of the text behind the last image of a prompt: in most families the
 * text. ERR_VALIDATION: a text that the family does not allow. */
int vision_text(const struct vision *v, const char *text, size_t n, struct buf *out, struct err *e);

/* An image in a prompt: its tokens are [first, first + n), from its first vision_token() to its
 * last, possibly with others between. grid_h, grid_w and tiles are the plan's. A video without
 * vision_frames_apart() has several such grids, whose times are `interval` positions apart. */
struct vision_place {
    uint32_t first, n, grid_h, grid_w;
    float interval;
    struct vision_tiles tiles;
    uint32_t behind; /* with vision_canvas(): tokens that follow and belong to it */
};
/* That interval for a plan; 0 for an image. */
float vision_interval(const struct vision *v, const struct vision_plan *p);
/* The coordinates of token i in a prompt with images place[0 .. n), ascending: t, h, w of M-RoPE
 * (arXiv 2409.12191), or what else the family's rotation uses. Only with vision_three_positions().
 */
void vision_position(const struct vision *v, const struct vision_place *place, uint32_t n,
                     uint32_t i, uint32_t out[3]);
#endif
