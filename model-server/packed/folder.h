/* folder.h - a folder of packed-weight files, shared by processes and models.
 *
 * A file is LABEL-KEY.packed. The label names model, rank and types; the key (16 hexadecimal
 * digits) identifies the contents. A writer locks NAME.tmp and renames it when it is complete, so
 * that readers see complete files only. */
#ifndef MODEL_SERVER_PACKED_FOLDER_H
#define MODEL_SERVER_PACKED_FOLDER_H
#include <stdbool.h>
#include <stdint.h>

/* Creates the folder if it is missing. False: errno. */
bool packed_folder_make(const char *dir);
/* Opens and locks an empty temporary file. -1: errno; EWOULDBLOCK: another process writes it. */
int packed_folder_begin(const char *temp);
/* Removes files of `label` other than `name`, and leftovers of killed writers. Then removes the
 * least recently used files until `room` more bytes fit below `most`. False: they cannot fit. */
bool packed_folder_trim(const char *dir, const char *label, const char *name, uint64_t room,
                        uint64_t most);
#endif
