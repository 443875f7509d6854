/* embed_images.h - parses what embedding protocols have instead of a text: texts and images. */
#ifndef ROUTER_CALL_EMBED_IMAGES_H
#define ROUTER_CALL_EMBED_IMAGES_H
#include "router/call/embed_body.h"

/* One part of an input: a text, or an image. */
struct shown_part {
    const char *text; /* NULL: an image */
    const char *url;  /* of an image: data:, http: or https:, or a file in base64 alone */
};
/* Fills `out` with a prompt of these parts in their order: the model's placeholder stands for each
 * image, unless the texts already have placeholders. False: the body was failed. */
bool texts_show(struct call *c, struct body *b, const char *key, const struct shown_part *parts,
                uint32_t n, struct text_input *out);
/* Reads `content` of an object: a text, or a list of parts of the types `text` and `image_url`.
 * False: the body was failed. */
bool texts_content(struct call *c, struct body *b, const char *key, const cJSON *content,
                   struct text_input *out);
/* The pair of a query and a document, each a text or a prompt with images. */
struct text_input text_pair(const struct text_input *query, const struct text_input *document);
/* As body_documents(). Items of a list may also be objects with `image` or `content`; in place of a
 * list an object with `content` has a part for each document (vLLM). */
const struct text_input *body_documents_or_images(struct call *c, struct body *b, struct object o,
                                                  const char *key, uint32_t *n);
/* As body_texts(). Items of a list may also be objects with `text`, `image` or both (Jina), or with
 * `content` (texts_content()). */
const struct text_input *body_texts_or_images(struct call *c, struct body *b, struct object o,
                                              const char *key, uint32_t *n);
#endif
