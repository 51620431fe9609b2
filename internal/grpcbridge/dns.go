package grpcbridge

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "google.golang.org/grpc/resolver/dns" // has the setter
)

// What google.golang.org/grpc/resolver/dns.SetMinResolutionInterval sets.
//
//go:linkname minResolutionInterval google.golang.org/grpc/internal/resolver/dns.MinResolutionInterval
var minResolutionInterval time.Duration

// MinResolutionInterval returns the least time from one look-up of a name in DNS to
// the next: 30 s, unless the program has called dns.SetMinResolutionInterval. gRPC has
// a setter for it but no getter. If a future gRPC lacks it, the result is 0, and names
// are looked up as often as connections fail.
func MinResolutionInterval() time.Duration { return minResolutionInterval }
