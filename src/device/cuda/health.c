/* health.c: clock, power, temperature and throttling reason, from NVIDIA's management library.
 *
 * The library comes with the driver and is loaded on first use; without it nothing is reported. Its functions are
 * declared here as far as they are used, so that no header of it is needed. Nothing is ever set.
 */
#include "device/cuda/shared/state.h"
#include "tensor/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0 };

static struct {
    bool is_there;
    int (*init)(void);
    int (*handle)(const char *pci_bus_id, void **device);
    int (*clock)(void *device, int which, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*reasons)(void *device, unsigned long long *bits);
} nvml;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void library_open(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); /* never closed: the process ends first */
    if (!library) return;
    const struct cuda_symbol symbols[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.handle},
        {"nvmlDeviceGetClockInfo", &nvml.clock},
        {"nvmlDeviceGetPowerUsage", &nvml.power},
        {"nvmlDeviceGetTemperature", &nvml.temperature},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.reasons},
    };
    nvml.is_there =
        !cuda_symbols_find(library, symbols, sizeof symbols / sizeof *symbols) && nvml.init() == NVML_SUCCESS;
}

/* The reasons in words, separated by commas; "" if nothing limits the clock. */
static void limit_name(unsigned long long bits, char *text, size_t size) {
    static const struct {
        unsigned long long bit;
        const char *name;
    } reasons[] = {{0x1, "idle"},          {0x2, "application clocks"}, {0x4, "power"},
                   {0x8, "hardware"},      {0x10, "sync boost"},        {0x20, "heat (driver)"},
                   {0x40, "heat (board)"}, {0x80, "power brake"},       {0x100, "display"}};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (bits & reasons[i].bit && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", reasons[i].name);
}

bool cuda_health(const tl_device *device, struct device_health *health) {
    const struct cuda_state *state = device->own;
    char bus[32];
    void *card = NULL;
    unsigned mhz = 0, milliwatts = 0, celsius = 0;
    unsigned long long bits = 0;
    pthread_once(&once, library_open);
    if (!nvml.is_there) return false;
    if (cudaDeviceGetPCIBusId(bus, (int)sizeof bus, state->index) != cudaSuccess) {
        cudaGetLastError(); /* clear the error, or the next launch would report it */
        return false;
    }
    if (nvml.handle(bus, &card) != NVML_SUCCESS || nvml.clock(card, NVML_CLOCK_SM, &mhz) != NVML_SUCCESS ||
        nvml.power(card, &milliwatts) != NVML_SUCCESS ||
        nvml.temperature(card, NVML_TEMPERATURE_GPU, &celsius) != NVML_SUCCESS ||
        nvml.reasons(card, &bits) != NVML_SUCCESS)
        return false;
    *health = (struct device_health){.clock_hz = 1e6 * mhz, .watts = milliwatts / 1e3, .celsius = celsius};
    limit_name(bits, health->limit, sizeof health->limit);
    return true;
}
