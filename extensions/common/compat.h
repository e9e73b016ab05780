/*
 * compat.h
 *		Differences between PostgreSQL's major versions, in one place.
 *
 * Every PG_VERSION_NUM test of the project stands in the headers of compat/, by subject; the rest of the code
 * is written against the names there.  They are macros and inline functions, so
 * that an extension pays only for those it uses.
 */
#ifndef STRATA_COMPAT_H
#define STRATA_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "PostgreSQL 15 or later is needed"
#endif

#include "compat/catalog.h"
#include "compat/command.h"
#include "compat/permissions.h"
#include "compat/planner.h"
#include "compat/query.h"
#include "compat/session.h"
#include "compat/storage.h"
#include "compat/table_access.h"

#endif
