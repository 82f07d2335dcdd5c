/* bill.h: what a training costs those who pay for it: days, device-hours, money, energy and carbon dioxide. */
#ifndef PLAN_BILL_H
#define PLAN_BILL_H

/* What people know of their machines. 0: not given. */
struct bill_terms {
    double mfu;        /* share of the peak, by PaLM's rule */
    double goodput;    /* share of the time that goes into steps that count; the rest: failures, restarts, saving */
    double pue;        /* energy of the building over that of its machines */
    double carbon;     /* g of CO2 per kWh */
    double host_watts; /* of the host and its network, for each device */
};

struct bill {
    double days, device_hours, money, energy_kwh, co2_kg; /* 0: not known */
};

/* Of some seconds on n devices, at a price for an hour of each. Watts of a chip: 0 if not known; then energy is that of
 * the hosts, if it is given. */
struct bill bill_of(const struct bill_terms *terms, double price_per_hour, double chip_watts, double n_devices,
                    double seconds);

/* How much longer or shorter than expected published runs took, as factors: nine of ten lie between
 * (tests/test_published.c). */
#define BILL_SHORTEST 0.79
#define BILL_LONGEST 1.56

#endif
