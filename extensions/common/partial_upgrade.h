/*
 * partial_upgrade.h
 *		pg_upgrade: partial aggregates are made of the functions that the new major has.
 */
#ifndef STRATA_PARTIAL_UPGRADE_H
#define STRATA_PARTIAL_UPGRADE_H

/* From _PG_init(); does nothing unless pg_upgrade has started this server. */
extern void partial_upgrade_initialize(void);

#endif
