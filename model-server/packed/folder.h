/* folder.h - the files of packed weights in a folder, which several processes and models share.
 *
 * A file is LABEL-KEY.packed: the label says of which model, rank and types it is, the key (16
 * hexadecimal digits) of which contents. It is written as that and ".tmp", locked by its writer and
 * renamed when it is complete, so that a file is there in full or not at all. */
#ifndef MODEL_SERVER_PACKED_FOLDER_H
#define MODEL_SERVER_PACKED_FOLDER_H
#include <stdbool.h>
#include <stdint.h>

/* The folder is made if it is not there. */
bool packed_folder_make(const char *dir); /* false: errno */
/* The file to write to, empty and locked. -1: errno; EWOULDBLOCK: another process writes it. */
int packed_folder_begin(const char *temp);
/* Removes files of `label` with other contents than `name`, and what killed writers left. Then, of
 * all others, what was used longest ago, until `room` bytes fit below `most`. False: they never do.
 */
bool packed_folder_trim(const char *dir, const char *label, const char *name, uint64_t room,
                        uint64_t most);
#endif
