/*
 * heartbeat.h
 *		The background process that asks each worker every second whether it lives.
 */
#ifndef STRATA_HEARTBEAT_H
#define STRATA_HEARTBEAT_H

/*
 * Main function of the process: connected to its database, signal handlers set.  Returns when the
 * process is to end.
 */
extern void heartbeat_main(void);

#endif
