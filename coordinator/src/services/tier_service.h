/*
 * tier_service.h
 *		Tells the workers the policies of the tiers, and starts their rounds of moves.
 */
#ifndef STRATA_TIER_SERVICE_H
#define STRATA_TIER_SERVICE_H

/* A task of the background processes (launcher.h). */
extern void tier_service_run(void);
extern int tier_service_interval(void);

#endif
