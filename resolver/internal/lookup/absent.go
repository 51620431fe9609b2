package lookup

import (
	"context"
	"errors"
	"net"
	"time"
)

// absentTimeout is how long absent waits for DNS.
const absentTimeout = 10 * time.Second

// absent reports whether DNS says that a name, "host:port", does not exist (NXDOMAIN) or has an address of
// neither family (NODATA).
//
// gRPC's resolver does not tell: it reports an empty answer for them, but also where a server refuses to
// answer, and Go's resolver drops a failure of one query if another one succeeds (IPv4 and IPv6,
// the domains of a search list). Endpoints must not be lost for a failure of DNS, so absent asks again,
// with a resolver that reports the failure of any query.
func absent(ctx context.Context, name string) bool {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, absentTimeout)
	defer cancel()
	strict := net.Resolver{PreferGo: true, StrictErrors: true, Dial: net.DefaultResolver.Dial}
	_, err = strict.LookupNetIP(ctx, "ip", host)
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound && !e.IsTemporary && !e.IsTimeout
}
