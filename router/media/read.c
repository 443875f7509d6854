#include "router/media/read.h"
#include "common/image/data_url.h"
#include "common/image/reel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Faults of an image; each protocol has its own message. */
enum fault { FAULT_URL, FAULT_BASE64, FAULT_FORMAT, FAULT_FETCH, FAULT_VIDEO };

static int tgi_words(const struct ask_image *s, enum fault f, const char *why, struct err *e)
{
    if (f == FAULT_URL)
        return err_set(e, ERR_VALIDATION, "Input validation error: invalid image content: %.*s",
                       s->n_url < 100 ? (int)s->n_url : 100, s->url);
    return err_set(e, ERR_VALIDATION, "Input validation error: %s%s",
                   f == FAULT_FORMAT  ? "invalid image: "
                   : f == FAULT_FETCH ? "Could not fetch image: "
                                      : "",
                   why);
}

static int openai_words(const struct ask_image *s, enum fault f, const char *why, struct err *e)
{
    if (f == FAULT_FORMAT)
        return err_set(e, ERR_IMAGE,
                       "You uploaded an unsupported image. Please make sure your image has of one "
                       "the following formats: ['png', 'jpeg', 'gif', 'webp'].");
    if (f == FAULT_FETCH)
        return err_set(e, ERR_IMAGE_URL, "Failed to download image from %.*s: %s",
                       s->n_url < 200 ? (int)s->n_url : 200, s->url, why);
    return err_set(e, ERR_IMAGE_URL, "Invalid %s: %s",
                   f == FAULT_VIDEO ? "video"
                   : s->video       ? "video URL"
                                    : "image URL",
                   why);
}

static int anthropic_words(const struct ask_image *s, enum fault f, const char *why, struct err *e)
{
    if (f == FAULT_FORMAT)
        return err_set(e, ERR_IMAGE, "Could not process image");
    if (f == FAULT_FETCH)
        return err_set(e, ERR_IMAGE_URL, "Unable to download the file: %s", why);
    return err_set(e, ERR_IMAGE_URL, "%s: %s", s->where ? s->where : "image.source", why);
}

static int fail(const struct ask *q, const struct ask_image *s, enum fault f, struct err *e)
{
    char why[sizeof(e->msg)];
    if (e->kind == ERR_SYSTEM || e->kind == ERR_OVERLOADED) /* an internal error */
        return -1;
    snprintf(why, sizeof(why), "%s", e->msg);
    return q->style == ASK_ANTHROPIC ? anthropic_words(s, f, why, e)
           : q->style == ASK_OPENAI  ? openai_words(s, f, why, e)
                                     : tgi_words(s, f, why, e);
}

static bool begins_with(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool is_away(const struct ask_image *s)
{
    return (s->n_url > 7 && !strncasecmp(s->url, "http://", 7)) ||
           (s->n_url > 8 && !strncasecmp(s->url, "https://", 8));
}

static int fetch(const struct media *m, const struct ask_image *s, size_t max, struct medium *out,
                 struct err *e)
{
    const struct media_rules *l = m->rules;
    struct media_fetch_options how = l->fetch;
    struct buf file = BUF_INIT;
    char *url = NULL;
    int rc = -1;
    how.max_bytes = max < how.max_bytes ? max : how.max_bytes;
    if (!l->fetches)
        return err_set(e, ERR_VALIDATION,
                       "this server fetches no images; send it as a data: URL in base64");
    if (atomic_fetch_add(l->fetching, 1) >= l->most_fetching)
        err_set(e, ERR_OVERLOADED, "Too many images are being fetched");
    else if (!(url = strndup(s->url, s->n_url)))
        err_nomem(e);
    else
        rc = media_fetch(&how, url, &file, e);
    atomic_fetch_sub(l->fetching, 1);
    free(url);
    out->n = file.len;
    out->bytes = rc == 0 ? buf_take(&file) : NULL;
    buf_free(&file);
    return rc == 0 && !out->bytes ? err_nomem(e) : rc;
}

/* Reads the file, of a video the frames' files or an animation. */
static int file_of(const struct media *m, const struct ask *q, const struct ask_image *s,
                   size_t max, struct medium *out, struct err *e)
{
    if (s->video && media_has_frames(s))
        return media_read_video(s, vision_most_frames(m->vision), max, out, e) == 0
                   ? 0
                   : fail(q, s, FAULT_URL, e);
    if (is_away(s))
        return fetch(m, s, max, out, e) == 0 ? 0 : fail(q, s, FAULT_FETCH, e);
    if (!data_url_is(s->url, s->n_url)) {
        err_set(e, ERR_VALIDATION, "an image is a URL that begins with data:, http: or https:");
        return fail(q, s, FAULT_URL, e);
    }
    const enum data_url_rule rule = q->style == ASK_TGI ? DATA_URL_TGI : DATA_URL_OPENAI;
    struct data_url file;
    if (data_url_decode(s->url, s->n_url, rule, max, &file, e) != 0)
        return fail(q, s, begins_with(e->msg, "base64 ") ? FAULT_BASE64 : FAULT_URL, e);
    out->bytes = file.bytes;
    out->n = file.n;
    return 0;
}

/* Decodes the file in `out`. */
static int look(const struct media *m, const struct ask *q, const struct ask_image *s,
                uint64_t max_pixels, struct medium *out, struct err *e)
{
    struct image_limits limits = image_default_limits;
    struct image_info info;
    struct image picture;
    if (image_sniff(out->bytes, out->n, &limits, &info, e) != 0)
        return fail(q, s, FAULT_FORMAT, e);
    if ((uint64_t)info.width * info.height > max_pixels)
        return err_set(e, ERR_VALIDATION,
                       "Input validation error: the images of a request may have at most %llu "
                       "pixels together",
                       (unsigned long long)m->rules->max_pixels);
    if (vision_plan(m->vision, info.width, info.height, &out->plan, e) != 0)
        return err_wrap(e, "Input validation error");
    if (out->plan.n_tokens == 0)
        return err_set(e, ERR_VALIDATION, "Input validation error: an image without any token");
    if (image_decode(m->decoder, out->bytes, out->n, NULL, &picture, e) != 0)
        return fail(q, s, FAULT_FORMAT, e);
    out->type = image_mime(info.format);
    out->digest = image_digest(&picture);
    const bool same = picture.width == info.width && picture.height == info.height;
    image_free(&picture);
    if (same)
        return 0;
    err_set(e, ERR_VALIDATION, "its header says another size than it has");
    return fail(q, s, FAULT_FORMAT, e);
}

static int decode_frame(void *decoder, const void *bytes, size_t n, const struct image_times *times,
                        struct image *out, struct err *e)
{
    return image_decode(decoder, bytes, n, times, out, e);
}

/* The same for a reel. */
static int watch(const struct media *m, const struct ask *q, const struct ask_image *s,
                 uint64_t max_pixels, struct medium *out, struct err *e)
{
    struct image_limits limits = image_default_limits;
    struct reel_info info;
    struct image frames;
    limits.max_pixels = max_pixels < limits.max_pixels ? max_pixels : limits.max_pixels;
    if (reel_sniff(out->bytes, out->n, &limits, &info, e) != 0)
        return fail(q, s, FAULT_VIDEO, e);
    const struct vision_video video = {info.width, info.height, info.frames, info.fps};
    if (vision_plan_video(m->vision, &video, &out->plan, e) != 0)
        return err_wrap(e, "Input validation error");
    if (reel_decode(decode_frame, m->decoder, out->bytes, out->n, &frames, e) != 0)
        return fail(q, s, FAULT_VIDEO, e);
    out->type = REEL_MIME;
    out->digest = image_digest(&frames);
    image_free(&frames);
    return 0;
}

int media_read(const struct media *m, const struct ask *q, const struct ask_image *s,
               size_t max_bytes, uint64_t max_pixels, struct medium *out, struct err *e)
{
    if (file_of(m, q, s, max_bytes, out, e) != 0)
        return -1;
    if (s->video && !media_has_frames(s) &&
        media_read_film(s, vision_most_frames(m->vision), out, e) != 0) {
        free(out->bytes);
        out->bytes = NULL;
        return fail(q, s, FAULT_VIDEO, e);
    }
    if ((s->video ? watch : look)(m, q, s, max_pixels, out, e) == 0)
        return 0;
    free(out->bytes);
    out->bytes = NULL;
    return -1;
}
