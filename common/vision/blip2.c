/* BLIP-2 (arXiv 2301.12597): the image as a square, which becomes as many tokens as there are
 * queries. They precede the text: OPT's begins with a token, T5's ends with one. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <string.h>

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_blip2 *b = &v->blip2;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean, vision_clip_std, 14});
    b->side = vision_side(s, &s->tower, "image_size", 224);
    b->tokens = vision_u32(s, &s->config, "num_query_tokens", 32, 1, 4096);
    if (vision_side(s, &s->pixels, "size", b->side) != b->side || b->side % v->format.patch ||
        vision_u32(s, &s->processor, "num_query_tokens", b->tokens, 1, 4096) != b->tokens)
        vision_settings_fail(s, "%s: size, image_size, patch_size and num_query_tokens disagree",
                             s->pixels.name);
    vision_keeps_square(s, b->side);
    const struct vision_section text = vision_inside(&s->config, "text_config");
    const char *type = json_str(text.o, "model_type", "opt");
    const bool t5 = strcmp(type, "t5") == 0;
    v->token = vision_read_token(s, vision_key(s, "image_token_index", "image_token_id"), "<image>",
                                 t5 ? 32100 : 50265, v->marker);
    vision_read_token(s, NULL, "</s>", t5 ? 1 : 2, t5 ? b->end : b->bos);
    if (!t5 && strcmp(type, "opt") != 0)
        vision_settings_fail(s, "config.json: images beside a text model %.40s", type);
    const double hidden = json_num(text.o, "hidden_size", 768);
    if (json_num(text.o, "word_embed_proj_dim", hidden) != hidden)
        vision_settings_fail(s, "config.json: images beside a projection of embeddings");
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_blip2 *b = &v->blip2;
    (void)e;
    out->crop_width = out->crop_height = b->side;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), b->side, b->side), 0, 0);
    out->n_features = b->tokens;
    return 0;
}

static struct vision_frame frame(const struct vision *v)
{
    return (struct vision_frame){v->blip2.bos, v->blip2.end, true, true};
}

const struct vision_family vision_blip2 = {
    .types = {"blip-2"}, .load = load, .plan = plan, .frame = frame};
