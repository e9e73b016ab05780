/*
 * fault_point.h
 *		Places where tests stop, fail or kill the server.
 *
 * They exist only in the build with -DSTRATA_FAULT_POINTS (scripts/build_assertions.sh), which
 * tests use and nobody installs; elsewhere they are nothing.
 */
#ifndef STRATA_FAULT_POINT_H
#define STRATA_FAULT_POINT_H

#ifdef STRATA_FAULT_POINTS

extern void fault_point_reach(const char *name, int index);

/* A place, and one of several like it: the index is part of the name, as in "prepare_sent_0". */
#define FAULT_POINT(name) fault_point_reach(name, -1)
#define FAULT_POINT_OF(name, index) fault_point_reach(name, index)

#else

#define FAULT_POINT(name) ((void) 0)
#define FAULT_POINT_OF(name, index) ((void) (index))

#endif

#endif
