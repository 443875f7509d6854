/* tgi.h - TGI's own bodies: {"inputs", "parameters"} in, "generated_text" and token events out.
 * Shared by /generate, /generate_stream, POST / and /tokenize. */
#ifndef ROUTER_API_TGI_TGI_H
#define ROUTER_API_TGI_TGI_H
#include "router/body/body.h"
#include "router/call/call.h"

struct tgi { /* the state of a call; in its arena */
    struct ask ask;
    bool stream;  /* the body's "stream" */
    bool details; /* or decoder_input_details, which implies them */
    bool return_full_text, full_text_given;
    struct tgi_sequence *seq; /* one a generation */
};

/* Read `inputs` and `parameters` of an object; -1: the body has been failed. Strings are the
 * object's. */
int tgi_read(struct body *b, struct object o, struct tgi *t);
/* Read the body; ERR_SYNTAX, ERR_SHAPE. NULL on failure. */
struct tgi *tgi_parse(struct call *c, bool with_stream, struct err *e);
/* Make the generations and choose the format. */
int tgi_generate(struct call *c, struct tgi *t, bool stream, bool as_array, struct err *e);
/* {"id":1,"text":"x","logprob":-0.5[,"special":false]} */
void tgi_token(struct buf *out, const struct gen_token *t, bool special);
#endif
