/* SigLIP (arXiv 2303.15343) and SigLIP 2 (2502.14786), images: a learned query reads the patches
 * behind the last norm, and an MLP follows. The result is the vector of an image. */
#include "model-server/encoder/family.h"

/* Grids: the patches, and at the end the vector; the query; what a step leaves to the next. */
enum { PATCHES, QUERY, A, B, C };
enum { PROBE = 1, INNER, INNER_OUT, NORM, UP, DOWN };
#define HEAD "vision_model.head."
static const char *const names[] = {[0] = "",
                                    [PROBE] = HEAD "probe",
                                    [INNER] = HEAD "attention.in_proj_",
                                    [INNER_OUT] = HEAD "attention.out_proj",
                                    [NORM] = HEAD "layernorm",
                                    [UP] = HEAD "mlp.fc1",
                                    [DOWN] = HEAD "mlp.fc2",
                                    [DOWN + 1] = NULL};

static void configure_tower(struct config *c, struct encoder_spec *s)
{
    family_blocks(
        c, s, &(struct block_keys){BLOCK_KEYS, "gelu_pytorch_tanh", 768, 12, 12, 3072, 1e-6, 16});
    s->width = s->blocks.hidden;
    family_positions(c, s, POSITIONS_TABLE, family_square(c, "image_size", 224));
}

/* Rows of the matrix of queries, keys and values. */
static struct conv_step part(uint8_t from, uint8_t to, uint32_t first, uint32_t n, uint32_t all)
{
    struct conv_step c = conv_linear(from, to, n, INNER);
    c.first = first;
    c.stored = all;
    return c;
}

static void attend(struct conv_spec *v, uint32_t n, uint32_t heads)
{
    conv_add(v, (struct conv_step){.kind = CONV_ROWS,
                                   .from = QUERY,
                                   .to = QUERY,
                                   .act = ACT_N,
                                   .weight = PROBE,
                                   .out = n,
                                   .rows = 1});
    conv_add(v, part(QUERY, A, 0, n, 3 * n));
    conv_add(v, part(PATCHES, B, n, 2 * n, 3 * n));
    conv_add(v, conv_attend(A, B, C, heads, n / heads));
    conv_add(v, conv_linear(C, PATCHES, n, INNER_OUT));
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const uint32_t n = config_u32_or(c, "hidden_size", 768, 1, 1u << 16);
    const uint32_t heads = config_u32_or(c, "num_attention_heads", 12, 1, 1u << 10);
    const uint32_t ffn = config_u32_or(c, "intermediate_size", 3072, 1, 1u << 20);
    const uint32_t side = family_square(c, "image_size", 224) / family_square(c, "patch_size", 16);
    struct conv_spec *const v = &s->conv;
    config_only(c, "vision_use_head", true);
    if (n % heads)
        config_fail(c, "`num_attention_heads` does not divide `hidden_size`");
    if (c->failed)
        return;
    family_reads_rows(s, side * side, n, n, (float)config_num_or(c, "layer_norm_eps", 1e-6));
    s->vectors = true;
    v->names = names;
    attend(v, n, heads);
    struct conv_step up = conv_linear(A, B, ffn, UP), down = conv_linear(B, PATCHES, n, DOWN);
    up.act = config_act(c, "hidden_act", "gelu_pytorch_tanh");
    down.add = true;
    conv_add(v, conv_norm(PATCHES, A, NORM));
    conv_add(v, up);
    conv_add(v, down);
}

static const struct encoder_family tower = {
    .names = {.names = {NAMES_SIGLIP("vision_model.", "vision_model.")}},
    .configure = configure_tower,
};
const struct encoder_family family_siglip = {
    .types = (const char *const[]){"siglip", NULL},
    .configure = configure,
    .before = &tower,
};
