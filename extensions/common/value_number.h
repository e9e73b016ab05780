/*
 * value_number.h
 *		Values as numbers, between which there are others: for estimates.
 */
#ifndef STRATA_VALUE_NUMBER_H
#define STRATA_VALUE_NUMBER_H

#include "postgres.h"

/* A number for the value, if values between two are more of them; false if it is none, or infinite. */
extern bool value_number_get(Oid type, Datum value, double *number);

/* The other way round, rounded down; the number is between two that value_number_get() gave. */
extern Datum value_number_make(Oid type, double number);

#endif
