/* rig_pictures.h - the rig's model does not support images: no function of pictures.h is ever
 * called. */
#ifndef TEST_ENGINE_RIG_PICTURES_H
#define TEST_ENGINE_RIG_PICTURES_H
#include "model-server/engine/media/pictures.h"
#include <stdlib.h>

#ifndef UNUSED
#define UNUSED __attribute__((unused))
#endif

#define NO_PICTURES(type, name, ...)                                                               \
    type name(__VA_ARGS__) { abort(); }
// clang-format off
NO_PICTURES(uint32_t, pictures_token, const struct pictures *p UNUSED)
NO_PICTURES(int, pictures_encode, struct pictures *p UNUSED, uint64_t most UNUSED,
            uint64_t *done UNUSED, struct err *e UNUSED)
NO_PICTURES(int, pictures_reserve, struct pictures *p UNUSED, uint32_t n UNUSED,
            struct err *e UNUSED)
NO_PICTURES(uint64_t, pictures_memory, const struct pictures *p UNUSED, uint32_t n UNUSED)
NO_PICTURES(struct media *, media_new, struct pictures *p UNUSED,
            const struct media_spec *s UNUSED, uint32_t n UNUSED,
            const uint32_t *ids UNUSED, uint32_t n_ids UNUSED,
            uint32_t cached UNUSED, struct err *e UNUSED)
NO_PICTURES(void, media_release, struct media *m UNUSED, uint32_t n UNUSED)
NO_PICTURES(uint32_t, media_end, const struct media *m UNUSED, uint32_t n UNUSED)
NO_PICTURES(void, media_want, struct media *m UNUSED, uint32_t from UNUSED,
            uint32_t to UNUSED)
NO_PICTURES(uint32_t, media_ready, const struct media *m UNUSED, uint32_t from UNUSED,
            uint32_t to UNUSED)
NO_PICTURES(struct media_token, media_token, const struct media *m UNUSED,
            uint32_t i UNUSED)
NO_PICTURES(bool, media_has, const struct media *m UNUSED, uint32_t i UNUSED)
NO_PICTURES(bool, media_has_axes, const struct media *m UNUSED)
NO_PICTURES(bool, media_is_two_way, const struct media *m UNUSED)
NO_PICTURES(const uint32_t *, media_shown, const struct media *m UNUSED)
NO_PICTURES(bool, pictures_cross, const struct pictures *p UNUSED)
NO_PICTURES(int, pictures_reserve_shown, struct pictures *p UNUSED, uint32_t n UNUSED,
            enum kv_dtype dtype UNUSED, struct err *e UNUSED)
NO_PICTURES(uint64_t, pictures_shown_bytes, const struct pictures *p UNUSED,
            enum kv_dtype dtype UNUSED)
NO_PICTURES(uint32_t, pictures_shown_most, const struct pictures *p UNUSED)
NO_PICTURES(uint32_t, pictures_shown_blocks, const struct pictures *p UNUSED)
// clang-format on
void media_free(struct media *m) { (void)m; }
#endif
