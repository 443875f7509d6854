/* MiniCPM-V 2.5 to 4.5 and MiniCPM-o 2.6 (arXiv 2408.01800), in the files of their authors: SigLIP
 * for slices of any shape, and learned queries that read its patches with positions in the keys. */
#include "model-server/encoder/family.h"

enum { PATCHES, ROWS, A, B, C, D };                                   /* grids */
enum { QUERIES = 1, QUERY_NORM, NARROW, KEY_NORM, INNER, INNER_OUT }; /* names */
enum { HEAD = 128, LONGEST = 4096, EDGE = 4 /* patches that a slice may be wider by */ };

#define SAMPLER "resampler."
static const char *const names[] = {[0] = "",
                                    [QUERIES] = SAMPLER "query",
                                    [QUERY_NORM] = SAMPLER "ln_q",
                                    [NARROW] = SAMPLER "kv_proj",
                                    [KEY_NORM] = SAMPLER "ln_kv",
                                    [INNER] = SAMPLER "attn.in_proj_",
                                    [INNER_OUT] = SAMPLER "attn.out_proj",
                                    [INNER_OUT + 1] = NULL};

/* Part `nth` of attention's matrix of queries, keys and values. */
static void part(struct conv_spec *s, uint8_t from, uint8_t to, uint32_t n, uint32_t nth)
{
    struct conv_step c = conv_linear(from, to, n, INNER);
    c.stored = 3 * n;
    c.first = nth * n;
    conv_add(s, c);
}

/* Keys have positions and values have none. */
static void read_patches(struct conv_spec *s, uint32_t patches, uint32_t n)
{
    const bool narrow = patches != n;
    if (narrow)
        conv_add(s, conv_product(PATCHES, A, n, NARROW));
    conv_add(s, conv_norm(narrow ? A : PATCHES, B, KEY_NORM));
    conv_add(s, (struct conv_step){
                    .kind = CONV_AXES, .from = B, .to = A, .act = ACT_N, .rows = LONGEST});
    part(s, A, C, n, 1);
    part(s, B, D, n, 2);
    conv_add(s, (struct conv_step){.kind = CONV_JOIN, .from = C, .with = D, .to = A, .act = ACT_N});
}

static void configure(struct config *c, struct encoder_spec *s)
{
    const uint32_t patches = config_u32_or(c, "hidden_size", 1152, 1, 1u << 16);
    const double queries = json_num(c->file, "query_num", 64);
    const double side = json_num(c->file, "image_size", 448);
    const uint32_t n = s->width = family_text_width(c), patch = family_square(c, "patch_size", 14);
    struct conv_spec *const v = &s->conv;
    if (!(queries >= 1 && queries <= 4096 && side >= patch && side <= 1 << 14) || n % HEAD) {
        config_fail(c,
                    "`query_num` or `image_size` is out of bounds, or `hidden_size` no multiple "
                    "of %d",
                    HEAD);
        return;
    }
    s->patch = s->cell = s->frames = 1;
    s->of_features = true;
    s->blocks.hidden = n;
    *v = (struct conv_spec){.side = (uint32_t)side / patch + EDGE,
                            .channels = patches,
                            .queries = true,
                            .names = names,
                            .norm = {.kind = NORM_LAYER, .eps = 1e-6F}};
    read_patches(v, patches, n);
    conv_add(v, (struct conv_step){.kind = CONV_ROWS,
                                   .from = ROWS,
                                   .to = ROWS,
                                   .act = ACT_N,
                                   .weight = QUERIES,
                                   .norm = QUERY_NORM,
                                   .out = n,
                                   .rows = (uint32_t)queries});
    part(v, ROWS, B, n, 0);
    conv_add(v, conv_attend(B, A, C, n / HEAD, HEAD));
    conv_add(v, conv_linear(C, PATCHES, n, INNER_OUT));
    s->project = (struct encoder_projection){.norm = true,
                                             .norm_spec = v->norm,
                                             .norm_bias = true,
                                             .norm_role = W_PROJECT_NORM,
                                             .join = 1,
                                             .linear = {{W_PROJECT_OUT, n, .plain_name = true}},
                                             .n_linears = 1};
}

static void configure_tower(struct config *c, struct encoder_spec *s)
{
    family_siglip_blocks(c, s, 1152, 27, 16, 4304);
    s->width = s->blocks.hidden;
    family_positions(c, s, POSITIONS_BUCKETS, family_square(c, "image_size", 980));
    if (json_bool(c->file, "drop_vision_last_layer", false) && s->blocks.n_layers > 1)
        s->blocks.n_layers--;
}

static const struct encoder_family tower = {
    .names = {.names = {NAMES_SIGLIP("vpm.", "vpm.vision_model.")}},
    .configure = configure_tower,
};
const struct encoder_family family_minicpmv_first = {
    .types = (const char *const[]){"minicpmv", "minicpmo", NULL},
    .names = {.names = {[W_PROJECT_NORM] = SAMPLER "ln_post", [W_PROJECT_OUT] = SAMPLER "proj"}},
    .configure = configure,
    .before = &tower,
};
