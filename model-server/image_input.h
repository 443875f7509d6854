/* image_input.h - what a shard needs to take pictures: how they become tokens, a process that
 * decodes them, the tower, features that are kept. */
#ifndef MODEL_SERVER_IMAGE_INPUT_H
#define MODEL_SERVER_IMAGE_INPUT_H
#include "common/image/decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "model-server/engine/pictures.h"
#include "model-server/model/model.h"

struct image_input {
    struct vision *vision;
    struct tower *tower;
    struct image_decoder *decoder;
    struct pictures *pictures; /* all NULL: the model reads text only */
};
struct image_input_options {
    const char *dir;
    const struct tokenizer *tok; /* not needed afterwards */
    struct model *model;
    const struct backend_ops *ops;
    struct device *dev;
    bool measure; /* the model was only measured: no file will be decoded */
};

/* A model of text, and one whose tower is not known or cannot be loaded, takes no pictures: the
 * latter is logged, and its text model is served as ever. -1: no memory, no process. */
int image_input_open(struct image_input *in, const struct image_input_options *o, struct err *e);
void image_input_close(struct image_input *in); /* after the engine, before the model */
#endif
