/* The tower of FastVLM (arXiv 2412.13303): FastViT's MCi3 (2303.14189) as it is for inference,
 * where the branches of its blocks are one convolution. */
#include "model-server/encoder/family.h"
#include <string.h>

/* Grids: the stream alternates between the first two; what a block computes in between. */
enum { FIRST, SECOND, A, B, C };
enum { STAGES = 5, HEAD = 32, REDUCED = 16 };

/* Numbers of tensor names. */
enum {
    STEM = 1,
    STEM_DEPTH,
    STEM_OUT,
    DOWN,
    DOWN_OUT,
    PLACES,
    MIX,
    ATTEND_NORM,
    QKV,
    ATTEND_OUT,
    ATTEND_SCALE,
    MLP_DEPTH,
    MLP_BATCH,
    MLP_IN,
    MLP_OUT,
    MIX_SCALE,
    MLP_SCALE,
    LAST,
    GATE_IN,
    GATE_OUT,
    NAMES
};

#define TOWER    "model.vision_tower.timm_model."
#define STAGE(x) TOWER "stages.*." x
#define BLOCK(x) STAGE("blocks.*." x)
static const char *const names[NAMES + 1] = {[0] = "",
                                             [STEM] = TOWER "stem.0.reparam_conv",
                                             [STEM_DEPTH] = TOWER "stem.1.reparam_conv",
                                             [STEM_OUT] = TOWER "stem.2.reparam_conv",
                                             [DOWN] = STAGE("downsample.proj.0.reparam_conv"),
                                             [DOWN_OUT] = STAGE("downsample.proj.1.reparam_conv"),
                                             [PLACES] = STAGE("pos_emb.reparam_conv"),
                                             [MIX] = BLOCK("token_mixer.reparam_conv"),
                                             [ATTEND_NORM] = BLOCK("norm"),
                                             [QKV] = BLOCK("token_mixer.qkv"),
                                             [ATTEND_OUT] = BLOCK("token_mixer.proj"),
                                             [ATTEND_SCALE] = BLOCK("layer_scale_1.gamma"),
                                             [MLP_DEPTH] = BLOCK("mlp.conv.conv"),
                                             [MLP_BATCH] = BLOCK("mlp.conv.bn"),
                                             [MLP_IN] = BLOCK("mlp.fc1"),
                                             [MLP_OUT] = BLOCK("mlp.fc2"),
                                             [MIX_SCALE] = BLOCK("layer_scale.gamma"),
                                             [MLP_SCALE] = BLOCK("layer_scale_2.gamma"),
                                             [LAST] = TOWER "final_conv.reparam_conv",
                                             [GATE_IN] = TOWER "final_conv.se.fc1",
                                             [GATE_OUT] = TOWER "final_conv.se.fc2"};

/* The block that is being built, and the grid and channels of the stream before it. */
struct build {
    struct conv_spec *s;
    uint16_t stage, block;
    uint8_t stream;
    uint32_t channels;
};

static void add(struct build *b, struct conv_step c)
{
    c.at[0] = b->stage, c.at[1] = b->block;
    conv_add(b->s, c);
}

static struct conv_step depthwise(uint8_t from, uint8_t to, uint8_t size, uint8_t stride,
                                  uint32_t out, uint8_t weight)
{
    return conv_depthwise(conv_linear(from, to, out, weight), size, stride);
}

static struct conv_step with_gelu(struct conv_step c)
{
    c.act = ACT_GELU;
    return c;
}

/* A depthwise convolution of the stream, which changes its grid. */
static void mix(struct build *b, uint8_t size, uint8_t weight)
{
    const uint8_t to = b->stream == FIRST ? SECOND : FIRST;
    add(b, depthwise(b->stream, to, size, 1, b->channels, weight));
    b->stream = to;
}

/* The MLP of a block, of four times the width, added to the stream. */
static void mlp(struct build *b, uint8_t scale)
{
    struct conv_step c = depthwise(b->stream, A, 7, 1, b->channels, MLP_DEPTH);
    c.bias = false;
    c.batch = MLP_BATCH;
    add(b, c);
    add(b, with_gelu(conv_linear(A, B, 4 * b->channels, MLP_IN)));
    c = conv_linear(B, b->stream, b->channels, MLP_OUT);
    c.scale = scale;
    c.add = true;
    add(b, c);
}

static void attention(struct build *b)
{
    add(b, conv_norm(b->stream, A, ATTEND_NORM));
    struct conv_step c = conv_linear(A, B, 3 * b->channels, QKV);
    c.bias = false;
    add(b, c);
    add(b, conv_attend(B, B, C, b->channels / HEAD, HEAD));
    c = conv_linear(C, b->stream, b->channels, ATTEND_OUT);
    c.scale = ATTEND_SCALE;
    c.add = true;
    add(b, c);
}

static void stem(struct build *b)
{
    struct conv_step c = with_gelu(conv_linear(FIRST, A, b->channels, STEM));
    c.size = 3, c.stride = 2;
    add(b, c);
    add(b, with_gelu(depthwise(A, B, 3, 2, b->channels, STEM_DEPTH)));
    add(b, with_gelu(conv_linear(B, FIRST, b->channels, STEM_OUT)));
}

/* Half as many places a side, of `channels`, which are a multiple of those before. */
static void halve(struct build *b, uint32_t channels)
{
    const uint8_t to = b->stream;
    add(b, with_gelu(depthwise(b->stream, A, 7, 2, channels, DOWN)));
    add(b, with_gelu(conv_linear(A, to, channels, DOWN_OUT)));
    b->channels = channels;
}

/* Squeeze and excitation follow the last convolution. */
static void finish(struct build *b)
{
    const uint32_t out = 2 * b->channels, inner = (out + REDUCED / 2) / REDUCED;
    add(b, depthwise(b->stream, A, 3, 1, out, LAST));
    add(b, (struct conv_step){.kind = CONV_GATE,
                              .from = A,
                              .to = FIRST,
                              .act = ACT_GELU,
                              .weight = GATE_IN,
                              .norm = GATE_OUT,
                              .out = inner ? inner : 1});
}

/* timm's arguments, which change the numbers of MCi3. */
struct sizes {
    uint32_t blocks[STAGES], channels[STAGES];
};

static void read_list(struct config *c, const cJSON *more, const char *key, uint32_t most,
                      uint32_t out[STAGES])
{
    const cJSON *list = json_get(more, key), *one;
    int i = 0;
    if (!list)
        return;
    cJSON_ArrayForEach(one, list)
    {
        const double n = cJSON_IsNumber(one) ? one->valuedouble : 0;
        if (i == STAGES || !(n >= 1 && n <= most) || n != (uint32_t)n) {
            i = 0;
            break;
        }
        out[i++] = (uint32_t)n;
    }
    if (i != STAGES)
        config_fail(c, "`%s` must be %d numbers up to %u", key, STAGES, most);
}

static void read_arguments(struct config *c, struct sizes *z)
{
    const cJSON *more = json_get(c->root, "model_args"), *one;
    cJSON_ArrayForEach(one, more)
    {
        const char *key = one->string ? one->string : "";
        if (strcmp(key, "inference_mode") != 0 && strcmp(key, "layers") != 0 &&
            strcmp(key, "embed_dims") != 0)
            config_fail(c, "`model_args`: `%.40s` is not supported", key);
    }
    if (!json_bool(more, "inference_mode", false))
        config_fail(c, "`inference_mode` of `model_args` must be true");
    read_list(c, more, "layers", 64, z->blocks);
    read_list(c, more, "embed_dims", 4096, z->channels);
    for (int i = 1; i < STAGES; i++)
        if (z->channels[i] % z->channels[i - 1] || (i > 2 && z->channels[i] % HEAD))
            config_fail(c, "`embed_dims` must be multiples, in the last stages of %d", HEAD);
}

static void stages(struct build *b, const struct sizes *z)
{
    for (int i = 0; i < STAGES; i++) {
        b->stage = (uint16_t)i;
        b->block = 0;
        if (i > 0)
            halve(b, z->channels[i]);
        if (i > 2)
            mix(b, 7, PLACES);
        for (; b->block < z->blocks[i]; b->block++) {
            if (i > 2)
                attention(b);
            else
                mix(b, 3, MIX);
            mlp(b, i > 2 ? MLP_SCALE : MIX_SCALE);
        }
    }
}

static void configure(struct config *c, struct encoder_spec *s)
{
    struct sizes z = {{2, 12, 24, 4, 2}, {96, 192, 384, 768, 1536}};
    const bool bias = json_bool(c->file, "multimodal_projector_bias", true);
    config_only_word(c, "architecture", "fastvit_mci3");
    family_only_word(c, "vision_feature_select_strategy", "full");
    if (json_num(c->file, "vision_feature_layer", -1) != -1)
        config_fail(c, "`vision_feature_layer` must be -1");
    read_arguments(c, &z);
    s->patch = s->cell = s->frames = 1;
    s->width = family_text_width(c);
    s->blocks.hidden = 2 * z.channels[STAGES - 1];
    if (config_u32_or(c, "hidden_size", 3072, 1, 1u << 16) != s->blocks.hidden)
        config_fail(c, "`hidden_size` must be %u", s->blocks.hidden);
    s->conv.names = names;
    s->conv.norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-5F};
    s->conv.batch_eps = 1e-5F;
    s->conv.side = 1024;
    struct build b = {.s = &s->conv, .stream = FIRST, .channels = z.channels[0]};
    stem(&b);
    stages(&b, &z);
    finish(&b);
    family_two_matrices(s, bias, family_word_act(c, "projector_hidden_act", "gelu"));
}

const struct encoder_family family_fast_vlm = {
    .types = (const char *const[]){"fast_vlm", NULL},
    .names = {.names = {[W_PROJECT_IN] = "model.multi_modal_projector.linear_1",
                        [W_PROJECT_OUT] = "model.multi_modal_projector.linear_2"},
              .prefix = "model."},
    .configure = configure,
};
