/* crc.h: CRC32C (Castagnoli), the checksum of checkpoints, token files and event files. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is the checksum of, followed by these bytes; 0 is the checksum of nothing. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two ways it is computed; the processor's own instruction only where it has one. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes);
bool crc32c_has_instruction(void);

#endif
