package xdsresource

import (
	"time"

	"google.golang.org/grpc/codes"
)

// RetryPolicy is a RetryPolicy as gRFC A44 converts it. per_try_timeout,
// retriable_headers, host predicates and everything else that A44 does not
// name are ignored.
type RetryPolicy struct {
	// Codes is the set of status codes that are retried; it is not empty.
	Codes CodeSet
	// MaxAttempts counts the first attempt: num_retries + 1, from 2 to 5.
	MaxAttempts int
	// BaseBackoff is the upper bound of the random wait before the first
	// retry. It doubles with each retry up to MaxBackoff. Both are at least
	// 1 ms; defaults: 25 ms, and 10 times BaseBackoff.
	BaseBackoff, MaxBackoff time.Duration
}

// CodeSet is a set of the 17 gRPC status codes.
type CodeSet uint32

// NewCodeSet returns the set of the codes.
func NewCodeSet(members ...codes.Code) CodeSet {
	var s CodeSet
	for _, c := range members {
		s |= 1 << c
	}
	return s
}

// Has reports whether c is in the set. Codes that gRPC does not define never
// are.
func (s CodeSet) Has(c codes.Code) bool { return c <= codes.Unauthenticated && s>>c&1 == 1 }
