//! A work queue with client-go's contract: deduplication, delays, rate limits, drain.
