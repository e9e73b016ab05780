/*
 * service_tasks.h
 *		Services "maintenance" and "periods": run their tasks in turn, each when it is due.
 */
#ifndef STRATA_SERVICE_TASKS_H
#define STRATA_SERVICE_TASKS_H

/* Main functions of the processes. */
extern void service_tasks_maintenance_main(void);
extern void service_tasks_periods_main(void);

#endif
