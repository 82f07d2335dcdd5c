/* crc.h: CRC32C (Castagnoli), the checksum of checkpoints, token files and event files. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Extends a checksum `crc` by these bytes. The checksum of no bytes is 0. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two implementations; the instruction is used only on processors that have it. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes);
bool crc32c_has_instruction(void);

#endif
