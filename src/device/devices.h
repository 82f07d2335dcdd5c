/* devices.h: which devices and targets there are. */
#ifndef DEVICE_DEVICES_H
#define DEVICE_DEVICES_H

#include "tensor/device.h"

/* The targets of every kind of device, in order; NULL after the last. By name; NULL: there is none. (A card that is in
 * no table has a target too, from its driver: `meta:NAME` knows it while the card is open.) */
const struct target *target_at(int index);
const struct target *target_find(const char *name);
/* The meta device that prices a device: of "cuda:0@t4" meta:t4, of "cuda" that of the installed card, or, without
 * one, that of the first target of its kind; of a target's name that target. NULL: recorded. */
tl_device *device_stand_in(const char *name);

/* Which of its numbered devices a process means by a name without a number, "cuda": this one, or, where there are
 * fewer, they take turns. 0 unless processes were launched together, which set it to their number on the machine.
 * Devices that are open stay what they are. */
void devices_set_number(int number);

/* Bytes that a device has for all that is on it. 0: not known, as on meta. */
uint64_t device_memory_bytes(const tl_device *device);

/* Between these two no other thread opens a device. device_at and device_opened are used between them only. */
void devices_hold(void);
void devices_release(void);
/* The devices that are open, in the order of their opening; NULL after the last. They are never closed. */
tl_device *device_at(int index);
/* Set by the ledger: called for every device that is opened (with the lock held), so that open ledgers see its
 * memory too. */
extern void (*device_opened)(tl_device *device);

/* Makes a kind of device known until the process ends: the way for devices that are not the library's own, as those of
 * tests. Not part of the public API, so its caller is linked with the library's objects. False: the name is taken, or
 * there are too many. */
bool device_register(const struct device_driver *driver);

#endif
