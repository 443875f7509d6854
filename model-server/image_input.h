/* image_input.h - what a shard encodes before the model reads it. Images: token layout, decoder
 * process, vision tower, feature cache. Or texts, in models of an encoder and a decoder. */
#ifndef MODEL_SERVER_IMAGE_INPUT_H
#define MODEL_SERVER_IMAGE_INPUT_H
#include "common/image/decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "model-server/encoder/tower.h"
#include "model-server/engine/media/pictures.h"
#include "model-server/model/model.h"
#include "model-server/model/text/text_encoder.h"

struct image_input {
    struct vision *vision;
    struct tower *tower;
    struct image_decoder *decoder;
    struct text_encoder *texts; /* instead of the former */
    struct pictures *pictures;  /* all NULL: the model takes text only, and has no such encoder */
};
struct image_input_options {
    const char *dir;
    const struct tokenizer *tok; /* used during the call only */
    struct model *model;
    const struct backend_ops *ops;
    struct device *dev;
    bool measure;      /* the model is only measured; no decoder process is started */
    uint32_t most_ids; /* pictures_options' */
};

/* Loads the tower and starts the decoder. A text model takes no images. If the tower is unknown or
 * cannot be loaded, that is logged, and the text model is served alone. -1: out of memory, the
 * process cannot be started, or the encoder of texts cannot be loaded. */
int image_input_open(struct image_input *in, const struct image_input_options *o, struct err *e);
/* Call it after the engine was freed and before the model is. */
void image_input_close(struct image_input *in);
#endif
