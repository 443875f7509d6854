/* sam.h - towers of SAM, as the first of several or alone: its sizes, steps and tensor names. */
#ifndef MODEL_SERVER_ENCODER_FAMILY_SAM_H
#define MODEL_SERVER_ENCODER_FAMILY_SAM_H
#include "common/json/json.h"
#include "model-server/encoder/family.h"

/* Numbers of tensor names. */
enum {
    SAM_PATCHES = 1,
    SAM_PLACES,
    SAM_ATTEND_NORM,
    SAM_QKV,
    SAM_ROWS,
    SAM_COLUMNS,
    SAM_ATTEND_OUT,
    SAM_MLP_NORM,
    SAM_MLP_IN,
    SAM_MLP_OUT,
    SAM_NECK_IN,
    SAM_NECK_IN_NORM,
    SAM_NECK_OUT,
    SAM_NECK_OUT_NORM,
    SAM_HALVE,
    SAM_HALVE_AGAIN,
    SAM_N_NAMES
};

/* Their names in files of transformers, behind the prefix `p`; those of the last two convolutions
 * differ. */
#define SAM_NAMES(p, halve, again)                                                                 \
    [0] = "", [SAM_PATCHES] = p "patch_embed.projection", [SAM_NECK_IN] = p "neck.conv1",          \
    [SAM_NECK_IN_NORM] = p "neck.layer_norm1", [SAM_NECK_OUT] = p "neck.conv2",                    \
    [SAM_NECK_OUT_NORM] = p "neck.layer_norm2", [SAM_HALVE] = halve, [SAM_HALVE_AGAIN] = again,    \
    SAM_NAMES_OF_LAYERS(p, "layers.*.layer_norm", "layers.*.")
/* In files of SAM's authors. */
#define SAM_NAMES_PLAIN(p, halve, again)                                                           \
    [0] = "", [SAM_PATCHES] = p "patch_embed.proj", [SAM_NECK_IN] = p "neck.0",                    \
    [SAM_NECK_IN_NORM] = p "neck.1", [SAM_NECK_OUT] = p "neck.2",                                  \
    [SAM_NECK_OUT_NORM] = p "neck.3", [SAM_HALVE] = halve, [SAM_HALVE_AGAIN] = again,              \
    SAM_NAMES_OF_LAYERS(p, "blocks.*.norm", "blocks.*.")
#define SAM_NAMES_OF_LAYERS(p, norm, layer)                                                        \
    [SAM_PLACES] = p "pos_embed", [SAM_ATTEND_NORM] = p norm "1", [SAM_MLP_NORM] = p norm "2",     \
    [SAM_QKV] = p layer "attn.qkv", [SAM_ROWS] = p layer "attn.rel_pos_h",                         \
    [SAM_COLUMNS] = p layer "attn.rel_pos_w", [SAM_ATTEND_OUT] = p layer "attn.proj",              \
    [SAM_MLP_IN] = p layer "mlp.lin1", [SAM_MLP_OUT] = p layer "mlp.lin2"

struct sam_sizes {
    uint32_t hidden, heads, mlp, side, window; /* side: places of the picture */
    bool qkv_bias, relative;
    bool fitted; /* pictures may be smaller: tables of positions are fitted to them */
    uint32_t neck, halved, out; /* channels of the last convolutions */
};
/* Reads the sizes from the open object, except `fitted`, `halved` and `out`. `image`: default of
 * image_size. At most 255 places a side, as of a step. False: the config failed. */
bool sam_read(struct config *c, struct sam_sizes *z, uint32_t image, uint32_t *patch);
/* Fills the tower's steps over pictures of z->side patches of `patch` pixels; the caller sets
 * conv.names. The result is not projected. */
void sam_tower(struct config *c, struct encoder_spec *s, const struct sam_sizes *z, uint32_t patch);
#endif
