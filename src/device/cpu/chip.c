#include "device/cpu/chip.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "tensor/device.h"

/* The value after "key<tab>:" of the first line of /proc/cpuinfo that has it. */
static bool line_find(const char *key, char *to, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    bool is_found = false;
    while (file && !is_found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key))) continue;
        char *value = colon + 1 + strspn(colon + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        text_copy(to, size, value);
        is_found = true;
    }
    if (file) fclose(file);
    return is_found;
}

/* Arm cores say a number. */
static void core_name(char *to, size_t size) {
    static const struct {
        const char *implementer, *part, *name;
    } cores[] = {{"0x41", "0xd0c", "Neoverse-N1"}, {"0x41", "0xd40", "Neoverse-V1"}, {"0x41", "0xd49", "Neoverse-N2"},
                 {"0x41", "0xd4f", "Neoverse-V2"}, {"0x41", "0xd84", "Neoverse-V3"}, {"0x41", "0xd8e", "Neoverse-N3"}};
    char implementer[16] = "", part[16] = "";
    if (line_find("model name", to, size)) return;
    line_find("CPU implementer", implementer, sizeof implementer);
    line_find("CPU part", part, sizeof part);
    snprintf(to, size, "core %s/%s", implementer, part);
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (!strcmp(cores[i].implementer, implementer) && !strcmp(cores[i].part, part))
            text_copy(to, size, cores[i].name);
}

/* In f64, exp, log and similar functions come from the C library. The compiler decides what the language leaves
 * open. */
void cpu_describe(tl_device *device, char *chip, char *libraries) {
    (void)device;
    core_name(chip, DEVICE_TEXT);
#ifdef __clang__
    snprintf(libraries, DEVICE_TEXT, "glibc %s, clang %d.%d.%d", gnu_get_libc_version(), __clang_major__,
             __clang_minor__, __clang_patchlevel__);
#else
    snprintf(libraries, DEVICE_TEXT, "glibc %s, gcc %d.%d.%d", gnu_get_libc_version(), __GNUC__, __GNUC_MINOR__,
             __GNUC_PATCHLEVEL__);
#endif
}
