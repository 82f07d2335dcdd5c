/* amx.h: x86's tile registers (AMX), set up as eight tiles of 16 rows of 64 bytes. */
#ifndef DEVICE_CPU_ARCH_AMX_H
#define DEVICE_CPU_ARCH_AMX_H

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

__attribute__((target("amx-tile"))) static inline void tiles_configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t n_rows[16];
    } __attribute__((aligned(64))) config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.n_rows[i] = 16;
    }
    _tile_loadconfig(&config);
}
#endif

#endif
