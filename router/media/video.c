/* video.c - videos: files of frames in base64 in a data URL, with commas between them, as vLLM
 * takes them (data:video/jpeg;base64,FRAME,FRAME...), and animated GIF and WebP files. */
#include "common/image/data_url.h"
#include "common/image/film.h"
#include "common/image/reel.h"
#include "router/media/read.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char kinds[] =
    "a video is an animated GIF or WebP file, or a URL that begins with data:video/jpeg;base64, "
    "and has the frames' files in base64, with commas between them; video files such as MP4 or "
    "WebM are not decoded";

/* Behind the first comma of the URL, or NULL: it is of another kind. */
static const char *frames_of(const char *url, size_t n)
{
    static const char type[] = "data:video/jpeg", coding[] = ";base64";
    const size_t n_coding = sizeof(coding) - 1, n_type = sizeof(type) - 1;
    const char *comma = memchr(url, ',', n);
    const size_t head = comma ? (size_t)(comma - url) : 0;
    if (head < n_type + n_coding || strncasecmp(url, type, n_type) != 0 || url[n_type] != ';' ||
        strncasecmp(comma - n_coding, coding, n_coding) != 0)
        return NULL;
    return comma + 1;
}

static size_t count(const char *s, const char *end)
{
    size_t n = 1;
    while ((s = memchr(s, ',', (size_t)(end - s)))) {
        s++;
        n++;
    }
    return n;
}

/* Decodes frames to `bytes`, one behind the other. */
static int decode(const char *at, const char *end, uint8_t *bytes, struct reel_frame *frames,
                  uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const size_t symbols = (size_t)((comma ? comma : end) - at);
        size_t len;
        if (base64_decode_lenient(at, symbols, bytes, &len, e) != 0)
            return err_wrap(e, "frame %u", i);
        frames[i] = (struct reel_frame){bytes, len};
        bytes += len;
        at += symbols + 1;
    }
    return 0;
}

bool media_has_frames(const struct ask_image *s) { return frames_of(s->url, s->n_url) != NULL; }

int media_read_film(const struct ask_image *s, uint32_t most_frames, struct medium *out,
                    struct err *e)
{
    const struct reel_frame file = {out->bytes, out->n};
    struct buf reel = BUF_INIT;
    uint64_t ms = 0;
    struct err why = ERR_INIT;
    if (film_length(out->bytes, out->n, &ms, &why) != 0)
        return err_set(e, ERR_VALIDATION, "%s", kinds);
    const double n = fmax(1, ceil((double)ms * s->fps / 1000));
    if (n > most_frames)
        return err_set(e, ERR_VALIDATION,
                       "a video may have at most %u frames. Given: %.0f, of %.1f seconds at `fps` "
                       "%g",
                       most_frames, n, (double)ms / 1000, s->fps);
    reel_write_film(&reel, &file, &(struct image_times){(uint32_t)n, s->fps});
    free(out->bytes);
    out->n = reel.len;
    out->bytes = reel.oom ? NULL : buf_take(&reel);
    buf_free(&reel);
    return out->bytes ? 0 : err_nomem(e);
}

int media_read_video(const struct ask_image *s, uint32_t most_frames, size_t max_bytes,
                     struct medium *out, struct err *e)
{
    const char *at = frames_of(s->url, s->n_url), *end = s->url + s->n_url;
    assert(at);
    const size_t symbols = (size_t)(end - at);
    const size_t n = count(at, end);
    assert(most_frames <= REEL_MAX_FRAMES);
    if (n > most_frames)
        return err_set(e, ERR_VALIDATION, "a video may have at most %u frames. Given: %zu",
                       most_frames, n);
    if (symbols / 4 * 3 > max_bytes)
        return err_set(e, ERR_VALIDATION, "the video has more than %zu bytes", max_bytes);
    struct buf reel = BUF_INIT;
    uint8_t *bytes = malloc(symbols / 4 * 3 + 3 * n);
    struct reel_frame *frames = calloc(n, sizeof(*frames));
    int rc = bytes && frames ? decode(at, end, bytes, frames, (uint32_t)n, e) : err_nomem(e);
    if (rc == 0) {
        reel_write(&reel, frames, (uint32_t)n, s->fps);
        out->n = reel.len;
        out->bytes = reel.oom ? NULL : buf_take(&reel);
        rc = out->bytes ? 0 : err_nomem(e);
    }
    buf_free(&reel);
    free(frames);
    free(bytes);
    return rc;
}
