/*
 * utility_class.h
 *		What each utility statement and each kind of object means for the workers.
 */
#ifndef STRATA_UTILITY_CLASS_H
#define STRATA_UTILITY_CLASS_H

#include "postgres.h"

#include "ddl/ddl.h"

typedef enum UtilityKind
{
	UTILITY_EVERYWHERE, /* here, and as it was typed on all workers that have the object */
	UTILITY_ADAPTED,	/* here, and commands of our own on the workers */
	UTILITY_CHECKED,	/* here, unless it would concern rows that are elsewhere */
	UTILITY_LOCAL		/* here only */
} UtilityKind;

typedef struct UtilityClass
{
	NodeTag tag;
	UtilityKind kind;
	UtilityHandler handler; /* NULL: as PostgreSQL runs it */
	const char *statements;
	const char *note;
} UtilityClass;

typedef enum ObjectPlace
{
	OBJECT_ON_ALL_NODES, /* unless it depends on what only the coordinator has */
	OBJECT_WITH_TABLE,	 /* where its table is */
	OBJECT_HERE			 /* on the coordinator only */
} ObjectPlace;

/* ERROR for a statement that is not in the table: PostgreSQL has learnt something that we have not. */
extern const UtilityClass *utility_class_find(NodeTag tag);

/* ERROR for a kind of object that is not in the table. */
extern ObjectPlace utility_class_object_place(ObjectType type);

#endif
