/*
 * period_maintenance.h
 *		Service "periods": makes periods ahead of time, empties default partitions, drops what is too old.
 */
#ifndef STRATA_PERIOD_MAINTENANCE_H
#define STRATA_PERIOD_MAINTENANCE_H

/* A task of the background processes (launcher.h): one look at all tables with periods. */
extern void period_maintenance_run(void);
extern int period_maintenance_interval(void);

#endif
