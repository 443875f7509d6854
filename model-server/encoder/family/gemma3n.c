/* The tower of Gemma 3n: MobileNet-V5 300M, of the blocks of MobileNetV4 (arXiv 2404.10518): edge
 * residuals, universal inverted bottlenecks and multi-query attention; then a fusion of the results
 * of two resolutions. */
#include "model-server/encoder/family.h"
#include <string.h>

/* Grids: the stream of the first three stages, what a block computes in between, and the stream of
 * the last stage. */
enum { STREAM, A, B, C, D, LAST };

/* Numbers of tensor names. */
enum {
    STEM = 1,
    STEM_NORM,
    EDGE,
    EDGE_NORM,
    EDGE_OUT,
    EDGE_OUT_NORM,
    START,
    START_NORM,
    EXPAND,
    EXPAND_NORM,
    MIDDLE,
    MIDDLE_NORM,
    PROJECT,
    PROJECT_NORM,
    LAYER_SCALE,
    ATTEND_NORM,
    QUERY,
    KEY_DOWN,
    KEY_NORM,
    KEY,
    VALUE_DOWN,
    VALUE_NORM,
    VALUE,
    ATTEND_OUT,
    FUSE,
    FUSE_NORM,
    FUSE_OUT,
    FUSE_OUT_NORM,
    FUSED_NORM,
    NAMES
};

#define TOWER    "model.vision_tower.timm_model."
#define BLOCK(x) TOWER "blocks.*.*." x
static const char *const names[NAMES + 1] = {[0] = "",
                                             [STEM] = TOWER "conv_stem.conv",
                                             [STEM_NORM] = TOWER "conv_stem.bn",
                                             [EDGE] = BLOCK("conv_exp"),
                                             [EDGE_NORM] = BLOCK("bn1"),
                                             [EDGE_OUT] = BLOCK("conv_pwl"),
                                             [EDGE_OUT_NORM] = BLOCK("bn2"),
                                             [START] = BLOCK("dw_start.conv"),
                                             [START_NORM] = BLOCK("dw_start.bn"),
                                             [EXPAND] = BLOCK("pw_exp.conv"),
                                             [EXPAND_NORM] = BLOCK("pw_exp.bn"),
                                             [MIDDLE] = BLOCK("dw_mid.conv"),
                                             [MIDDLE_NORM] = BLOCK("dw_mid.bn"),
                                             [PROJECT] = BLOCK("pw_proj.conv"),
                                             [PROJECT_NORM] = BLOCK("pw_proj.bn"),
                                             [LAYER_SCALE] = BLOCK("layer_scale.gamma"),
                                             [ATTEND_NORM] = BLOCK("norm"),
                                             [QUERY] = BLOCK("attn.query.proj"),
                                             [KEY_DOWN] = BLOCK("attn.key.down_conv"),
                                             [KEY_NORM] = BLOCK("attn.key.norm"),
                                             [KEY] = BLOCK("attn.key.proj"),
                                             [VALUE_DOWN] = BLOCK("attn.value.down_conv"),
                                             [VALUE_NORM] = BLOCK("attn.value.norm"),
                                             [VALUE] = BLOCK("attn.value.proj"),
                                             [ATTEND_OUT] = BLOCK("attn.output.proj"),
                                             [FUSE] = TOWER "msfa.ffn.pw_exp.conv",
                                             [FUSE_NORM] = TOWER "msfa.ffn.pw_exp.bn",
                                             [FUSE_OUT] = TOWER "msfa.ffn.pw_proj.conv",
                                             [FUSE_OUT_NORM] = TOWER "msfa.ffn.pw_proj.bn",
                                             [FUSED_NORM] = TOWER "msfa.norm"};

/* The block that is being built, and the channels before it. */
struct build {
    struct conv_spec *s;
    double multiplier;
    uint16_t stage, block;
    uint32_t channels;
    uint8_t stream, next; /* grids of the stream before the block, and after it */
};

static void add(struct build *b, struct conv_step c)
{
    c.at[0] = b->stage, c.at[1] = b->block;
    c.same = true;
    conv_add(b->s, c);
}

/* The product of each place, with a norm. */
static struct conv_step product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight,
                                uint8_t norm)
{
    struct conv_step c = conv_product(from, to, out, weight);
    c.norm = norm;
    return c;
}

static struct conv_step depthwise(uint8_t from, uint8_t to, uint8_t size, uint8_t stride,
                                  uint32_t channels, uint8_t weight, uint8_t norm)
{
    return conv_depthwise(product(from, to, channels, weight, norm), size, stride);
}

/* Channels as timm rounds them: to a multiple of 8, and not by more than a tenth. */
static uint32_t rounded(const struct build *b, uint32_t channels)
{
    const double exact = channels * b->multiplier;
    uint32_t n = (uint32_t)(exact + 4) / 8 * 8;
    n = n < 8 ? 8 : n;
    return n < 0.9 * exact ? n + 8 : n;
}

/* The last step of a block, which is added to the stream if its shape is the same. */
static void finish(struct build *b, struct conv_step c, bool same)
{
    c.to = b->next;
    c.add = same;
    add(b, c);
    b->stream = b->next;
    b->channels = c.out;
    b->block++;
}

static void edge(struct build *b, uint8_t stride, uint32_t channels)
{
    const uint32_t out = rounded(b, channels);
    struct conv_step c = product(b->stream, A, 4 * b->channels, EDGE, EDGE_NORM);
    c.size = 3, c.stride = stride;
    c.act = ACT_GELU_TANH;
    add(b, c);
    finish(b, product(A, 0, out, EDGE_OUT, EDGE_OUT_NORM), stride == 1 && out == b->channels);
}

/* Depthwise convolutions of size `start` before and `middle` after the expansion; 0: none. */
static void bottleneck(struct build *b, uint8_t start, uint8_t middle, uint8_t stride,
                       uint32_t expand, uint32_t channels)
{
    const uint32_t out = rounded(b, channels), wide = expand * b->channels;
    uint8_t at = b->stream;
    if (start) {
        add(b, depthwise(at, A, start, middle ? 1 : stride, b->channels, START, START_NORM));
        at = A;
    }
    struct conv_step c = product(at, B, wide, EXPAND, EXPAND_NORM);
    c.act = ACT_GELU_TANH;
    add(b, c);
    if (middle) {
        c = depthwise(B, C, middle, stride, wide, MIDDLE, MIDDLE_NORM);
        c.act = ACT_GELU_TANH;
        add(b, c);
    }
    c = product(middle ? C : B, 0, out, PROJECT, PROJECT_NORM);
    c.scale = LAYER_SCALE;
    finish(b, c, stride == 1 && out == b->channels);
}

/* Keys, or values: of places `stride` apart. */
static void key(struct build *b, uint8_t to, uint8_t stride, uint32_t dim, uint8_t down,
                uint8_t norm, uint8_t weight)
{
    if (stride > 1)
        add(b, depthwise(A, D, 3, stride, b->channels, down, norm));
    add(b, product(stride > 1 ? D : A, to, dim, weight, 0));
}

static void attention(struct build *b, uint32_t heads, uint32_t dim, uint8_t stride)
{
    add(b, conv_norm(b->stream, A, ATTEND_NORM));
    key(b, B, stride, dim, KEY_DOWN, KEY_NORM, KEY);
    key(b, C, stride, dim, VALUE_DOWN, VALUE_NORM, VALUE);
    add(b, (struct conv_step){.kind = CONV_JOIN, .from = B, .with = C, .to = D, .act = ACT_N});
    add(b, product(A, B, heads * dim, QUERY, 0));
    add(b, (struct conv_step){.kind = CONV_ATTEND,
                              .from = B,
                              .with = D,
                              .to = C,
                              .act = ACT_N,
                              .heads = heads,
                              .kv_heads = 1,
                              .head_dim = dim});
    struct conv_step c = product(C, 0, b->channels, ATTEND_OUT, 0);
    c.scale = LAYER_SCALE;
    finish(b, c, true);
}

static void next_stage(struct build *b)
{
    b->stage++;
    b->block = 0;
}

static void stages(struct build *b)
{
    static const uint8_t starts[] = {5, 3, 5, 3};
    edge(b, 2, 128), edge(b, 1, 128), edge(b, 1, 128);
    next_stage(b);
    bottleneck(b, 3, 5, 2, 6, 256);
    for (int i = 0; i < 4; i++)
        bottleneck(b, starts[i], 0, 1, 4, 256);
    next_stage(b);
    bottleneck(b, 5, 5, 2, 6, 640);
    for (int i = 0; i < 7; i++)
        bottleneck(b, 5, 0, 1, 4, 640);
    bottleneck(b, 0, 0, 1, 1, 640);
    for (int i = 0; i < 14; i++) {
        attention(b, 12, 64, 2);
        bottleneck(b, 0, 0, 1, 2, 640);
    }
    next_stage(b);
    b->next = LAST; /* the fusion reads both */
    bottleneck(b, 5, 5, 2, 6, 1280);
    for (int i = 0; i < 19; i++) {
        attention(b, 16, 96, 1);
        bottleneck(b, 0, 0, 1, 2, 1280);
    }
}

/* The results of the last two stages side by side, as means of squares. */
static void fuse(struct build *b, uint32_t third, uint32_t out, uint8_t side)
{
    add(b,
        (struct conv_step){.kind = CONV_JOIN, .from = STREAM, .with = LAST, .to = A, .act = ACT_N});
    struct conv_step c = product(A, B, 2 * (third + b->channels), FUSE, FUSE_NORM);
    c.act = ACT_GELU_TANH;
    add(b, c);
    add(b, product(B, C, out, FUSE_OUT, FUSE_OUT_NORM));
    add(b, (struct conv_step){.kind = CONV_MEAN,
                              .from = C,
                              .to = STREAM,
                              .size = side,
                              .act = ACT_N,
                              .norm = FUSED_NORM});
}

/* timm's arguments that are known: a factor of the channels, and the places a side of the result.
 * Writes them if they are right. */
static void read_arguments(struct config *c, double *multiplier, uint8_t *side)
{
    static const char times[] = "channel_multiplier", places[] = "msfa_output_resolution";
    const cJSON *more = json_get(c->root, "model_args"), *one;
    const double by = json_num(more, times, 1), n = json_num(more, places, 16);
    cJSON_ArrayForEach(one, more) if (!one->string || (strcmp(one->string, times) != 0 &&
                                                       strcmp(one->string, places) != 0))
        config_fail(c, "`model_args`: `%.40s` is not supported", one->string ? one->string : "");
    if (!(by > 0 && by <= 4) || !(n >= 1 && n <= 255 && n == floor(n))) {
        config_fail(c, "`%s` or `%s` is out of bounds", times, places);
        return;
    }
    *multiplier = by;
    *side = (uint8_t)n;
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const uint32_t hidden = config_u32_or(c, "hidden_size", 2048, 1, 1u << 16);
    const double features = json_num(c->file, "vision_soft_tokens_per_image", 256);
    const float eps = (float)config_num_or(c, "rms_norm_eps", 1e-6);
    struct build b = {.s = &s->conv, .multiplier = 1};
    uint8_t side = 16;
    read_arguments(c, &b.multiplier, &side);
    if (strcmp(config_str_or(c, "architecture", "mobilenetv5_300m_enc"), "mobilenetv5_300m_enc") !=
        0)
        config_fail(c, "`architecture` must be mobilenetv5_300m_enc");
    if (hidden != 2048 || features != side * side)
        config_fail(c, "`hidden_size` must be 2048, and `vision_soft_tokens_per_image` %u",
                    side * side);
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){.kind = NORM_RMS, .eps = 1e-6F};
    s->conv.side = 48 * side; /* 768, as it was trained */
    b.channels = b.multiplier < 1 ? 64 : rounded(&b, 64);
    struct conv_step stem = product(0, C, b.channels, STEM, STEM_NORM);
    stem.size = 3, stem.stride = 2;
    stem.bias = true;
    stem.act = ACT_GELU_TANH;
    add(&b, stem);
    b.stream = C;
    b.next = STREAM;
    stages(&b);
    fuse(&b, rounded(&b, 640), hidden, side);
    s->patch = s->cell = s->frames = 1;
    s->blocks.hidden = hidden;
    s->width = family_text_width(c);
    s->project =
        (struct encoder_projection){.norm = true,
                                    /* of rows times the root of their length */
                                    .norm_spec = {.kind = NORM_RMS, .eps = eps / (float)hidden},
                                    .norm_role = W_PROJECT_NORM,
                                    .join = 1,
                                    .linear = {{W_PROJECT_OUT, s->width}},
                                    .n_linears = 1,
                                    .after_eps = eps};
}

const struct encoder_family family_gemma3n = {
    .types = (const char *const[]){"gemma3n", NULL},
    .names = {.names = {[W_PROJECT_NORM] = "model.embed_vision.soft_embedding_norm",
                        [W_PROJECT_OUT] = "model.embed_vision.embedding_projection"},
              .prefix = "model."},
    .configure = configure,
};
