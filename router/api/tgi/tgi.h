/* tgi.h - TGI's bodies: {"inputs", "parameters"} in, "generated_text" and token events out. Shared
 * by /generate, /generate_stream, POST / and /tokenize. */
#ifndef ROUTER_API_TGI_TGI_H
#define ROUTER_API_TGI_TGI_H
#include "router/body/body.h"
#include "router/call/call.h"

struct tgi { /* state of a call; in its arena */
    struct ask ask;
    bool stream;  /* the body's "stream" */
    bool details; /* or decoder_input_details, which implies details */
    bool return_full_text, full_text_given;
    struct tgi_sequence *seq; /* one per generation */
};

/* Reads `inputs` and `parameters` of an object. -1: the body was failed. Strings belong to the
 * object. */
int tgi_read(struct body *b, struct object o, struct tgi *t);
/* Parses the body; ERR_SYNTAX, ERR_SHAPE. NULL on failure. */
struct tgi *tgi_parse(struct call *c, bool with_stream, struct err *e);
/* Creates the generations and selects the format. */
int tgi_generate(struct call *c, struct tgi *t, bool stream, bool as_array, struct err *e);
#endif
