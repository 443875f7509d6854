/* detok_texts.inc.h - in place of common/tokenizer/detok.h: the text of an id is texts[id], an
 * array that the test defines before it includes this. */
int detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *context, size_t n,
               bool skip_special)
{
    (void)t, (void)context, (void)n, (void)skip_special;
    *d = (struct detok){0};
    return 0;
}
void detok_free(struct detok *d) { (void)d; }
void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    (void)d;
    buf_add(out, texts[id], strlen(texts[id]));
}
