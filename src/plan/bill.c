#include "plan/bill.h"

#include "base/clock.h"

struct bill bill_of(const struct bill_terms *t, double price_per_hour, double chip_watts, double n_devices,
                    double seconds) {
    double all = seconds / (t->goodput > 0 ? t->goodput : 1), hours = n_devices * all / HOUR_S;
    struct bill bill = {.days = all / DAY_S, .device_hours = hours, .money = hours * price_per_hour};
    bill.energy_kwh = hours * (chip_watts + t->host_watts) / 1000 * (t->pue > 0 ? t->pue : 1);
    bill.co2_kg = bill.energy_kwh * t->carbon / 1000;
    return bill;
}
