/* embed_media.h - the images of a batch of texts that are embedded: features in place of
 * embeddings. Private to engine/embed.c. */
#ifndef MODEL_SERVER_ENGINE_EMBED_MEDIA_H
#define MODEL_SERVER_ENGINE_EMBED_MEDIA_H
#include "model-server/engine/embed.h"
#include "model-server/engine/media/pictures.h"

struct shown_texts {      /* zero-initialise */
    struct media **media; /* [n] NULL: a text without images */
    uint32_t n;
    bool alone;          /* vision_alone() */
    const float **given; /* of all tokens of texts with images, one text after the other */
    uint32_t (*axes)[3];
    struct mutual *mutual;
};
/* Decodes the images of `texts` [n]. ERR_VALIDATION: one is corrupt or does not match its
 * placeholders, or the model takes none. The caller closes *s, also after an error. */
int shown_open(struct shown_texts *s, struct pictures *p, const struct model_text *texts,
               const struct text_beside *beside, uint32_t n, struct err *e);
/* True if token i of text t is a placeholder, whose id is not looked up. */
bool shown_covers(const struct shown_texts *s, uint32_t t, uint32_t i);
/* True if text t is an image that has a vector without the model (vision_alone()). */
bool shown_alone(const struct shown_texts *s, uint32_t t);
/* Encodes them, and sets what the texts have of them. */
int shown_encode(struct shown_texts *s, struct pictures *p, struct model_text *texts,
                 struct err *e);
void shown_close(struct shown_texts *s);
#endif
