/* Projectors of two matrices behind CLIP or SigLIP: LLaVA 1.5, LLaVA-NeXT and Granite Vision, as
 * llama.cpp's first converter wrote them. Files say which layers are seen, but not how an image is
 * prepared: that is what the authors' code does, which pads an image or cuts it into tiles. */
#include "common/gguf/projector_impl.h"

static bool has_tiles(const struct projector *p)
{
    struct gguf_str merge = {"", 0};
    return gguf_text(p->file, "clip.vision.mm_patch_merge_type", &merge) &&
           gguf_str_is(&merge, "spatial_unpad");
}

const char *projector_llava_type(const struct projector *p)
{
    return has_tiles(p) ? "llava_next" : "llava";
}

const char *projector_llava_tower(const struct projector *p)
{
    return projector_has(p, "v.class_embd") ? "clip_vision_model" : "siglip_vision_model";
}

/* A file ends with the last layer that is seen, and names the layers if they are several. llama.cpp
 * leaves the last one out if it is not named; here it is computed, as in training. */
static void put_layers(const struct projector *p)
{
    static const char key[] = "vision_feature_layer";
    const struct gguf_value *list = gguf_numbers(p->file, "clip.vision.feature_layer");
    if (list && list->n > 1)
        meta_put_list(p->config, key, list, list->n);
    else
        meta_put_in(p->config, key, list && list->n ? gguf_number_at(list, 0) : -1);
}

/* The first converter knew two activations; SigLIP's is a third. */
void projector_llava(const struct projector *p)
{
    const bool clip = projector_has(p, "v.class_embd");
    put_layers(p);
    cJSON_AddStringToObject(p->config, "vision_feature_select_strategy", clip ? "default" : "full");
    cJSON_AddBoolToObject(p->config, "multimodal_projector_bias", projector_has(p, "mm.0.bias"));
    if (!clip)
        cJSON_ReplaceItemInObjectCaseSensitive(p->tower, "hidden_act",
                                               cJSON_CreateString("gelu_pytorch_tanh"));
}

/* The file's list has height and width in turn. */
static void put_pinpoints(const struct projector *p)
{
    const struct gguf_value *list = gguf_numbers(p->file, "clip.vision.image_grid_pinpoints");
    cJSON *pairs = list ? cJSON_AddArrayToObject(p->pixels, "image_grid_pinpoints") : NULL;
    for (uint64_t i = 0; list && i + 1 < list->n && i < GGUF_LAYERS_MAX; i += 2) {
        cJSON *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(gguf_number_at(list, i)));
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(gguf_number_at(list, i + 1)));
        cJSON_AddItemToArray(pairs, pair);
    }
}

void projector_llava_pixels(const struct projector *p)
{
    const double side = projector_number(p, "image_size", 0);
    meta_put_in(cJSON_AddObjectToObject(p->pixels, "size"), "shortest_edge", side);
    projector_square(p->pixels, "crop_size", side);
    if (has_tiles(p))
        put_pinpoints(p);
    else
        cJSON_AddTrueToObject(p->pixels, "do_pad");
}
