#include "model-server/image_input.h"
#include "common/log/log.h"
#include <assert.h>

enum { DECODE_MS = 10000, FEATURE_BYTES = 256 << 20 };

static int decode(void *decoder, const void *bytes, size_t n, const struct image_times *times,
                  struct image *out, struct err *e)
{
    return image_decode(decoder, bytes, n, times, out, e);
}

/* Layers of cross-attention need a cache of images' rows, which only generators keep. */
static bool takes_images(enum model_task task, const struct vision *v)
{
    return task == TASK_GENERATE || !vision_crosses(v);
}

/* Vectors of images and of texts are compared. */
static int check_width(const struct image_input *in, const struct model_info *m, struct err *why)
{
    const uint32_t width = tower_row(in->tower);
    if (!vision_alone(in->vision) || width == m->width)
        return 0;
    return err_set(why, ERR_VALIDATION, "vectors of images have %u numbers, those of texts %u",
                   width, m->width);
}

/* Loads layout and tower of images, and starts the decoder; in->tower NULL: the model has none. */
static int open_images(struct image_input *in, const struct image_input_options *o, struct err *e)
{
    const struct image_decoder_options d = {.limits = image_default_limits,
                                            .timeout_ms = DECODE_MS};
    struct err why = ERR_INIT;
    const enum model_task task = model_info(o->model)->task;
    if ((task != TASK_GENERATE && task != TASK_EMBED && task != TASK_RERANK &&
         task != TASK_TOKEN_EMBED) ||
        vision_load(o->dir, o->tok, &in->vision, &why) || !in->vision ||
        !takes_images(task, in->vision) ||
        tower_load(o->dir, model_decoder(o->model), &in->tower, &why) || !in->tower ||
        check_width(in, model_info(o->model), &why)) {
        if (why.kind != ERR_NONE)
            LOG(LOG_WARN, "this model is served without pictures", LOGS("why", why.msg));
        image_input_close(in);
        return 0;
    }
    if (!o->measure && !(in->decoder = image_decoder_new(&d, e)))
        return -1;
    LOG(o->measure ? LOG_DEBUG : LOG_INFO, "pictures are taken",
        LOGS("family", vision_family(in->vision)), LOGI("bytes", tower_weight_bytes(in->tower)));
    return 0;
}

static int open_texts(struct image_input *in, const struct image_input_options *o, struct err *e)
{
    if (text_encoder_load(o->dir, model_decoder(o->model), &in->texts, e))
        return -1;
    assert(in->texts);
    LOG(o->measure ? LOG_DEBUG : LOG_INFO, "prompts go through an encoder",
        LOGI("bytes", text_encoder_weight_bytes(in->texts)));
    return 0;
}

int image_input_open(struct image_input *in, const struct image_input_options *o, struct err *e)
{
    *in = (struct image_input){0};
    if (open_images(in, o, e) || (model_info(o->model)->attends_text && open_texts(in, o, e)))
        return -1;
    if (!in->texts && !in->tower)
        return 0;
    const struct pictures_options p = {.texts = in->texts,
                                       .most_ids = o->most_ids,
                                       .vision = in->vision,
                                       .tower = in->tower,
                                       .decode = decode,
                                       .decode_arg = in->decoder,
                                       .ops = o->ops,
                                       .dev = o->dev,
                                       .most_bytes = FEATURE_BYTES,
                                       .model = o->model};
    return (in->pictures = pictures_new(&p, e)) ? 0 : -1;
}

void image_input_close(struct image_input *in)
{
    pictures_free(in->pictures);
    image_decoder_free(in->decoder);
    tower_free(in->tower);
    text_encoder_free(in->texts);
    vision_free(in->vision);
    *in = (struct image_input){0};
}
