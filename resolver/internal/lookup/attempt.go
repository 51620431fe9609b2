package lookup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// errNoAddress also stands for a name that does not exist, which gRPC's resolver does not
// distinguish.
var errNoAddress = errors.New("DNS has no address for it")

// run looks the name up once. It reports whether there is an answer with addresses.
func (l *lookup) run() bool {
	a := &attempt{lookup: l, first: make(chan error, 1)}
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.name}}
	r, err := resolver.Get("dns").Build(target, a, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.answer(Result{Err: err})
		return false
	}
	// No other goroutine calls the resolver: it may call back from within Build, and its
	// Close waits for such a call to return.
	defer r.Close()
	select {
	case err := <-a.first:
		if errors.Is(err, errNoAddress) && l.known() && l.absent() {
			logger.Warningf("%q has no address any more", l.name)
			l.set(Result{Err: err})
		}
		return err == nil
	case <-l.ctx.Done():
		return false
	}
}

// attempt is the resolver.ClientConn of one look-up. The first report ends it; later ones
// count too while the name is watched.
type attempt struct {
	lookup *lookup
	first  chan error // has room for one
}

func (a *attempt) report(r Result) {
	a.lookup.answer(r)
	select {
	case a.first <- r.Err:
	default:
	}
}

// UpdateState implements resolver.ClientConn.
func (a *attempt) UpdateState(s resolver.State) error {
	list := s.Addresses
	if len(s.Endpoints) > 0 {
		list = nil
	}
	for _, e := range s.Endpoints {
		list = append(list, e.Addresses...)
	}
	if len(list) == 0 {
		a.report(Result{Err: errNoAddress})
		return balancer.ErrBadResolverState
	}
	addresses := make([]string, len(list))
	for i, address := range list {
		addresses[i] = address.Addr
	}
	a.report(Result{Addresses: addresses})
	return nil
}

// ReportError implements resolver.ClientConn.
func (a *attempt) ReportError(err error) { a.report(Result{Err: err}) }

// NewAddress implements resolver.ClientConn.
//
// Deprecated: resolvers call UpdateState.
func (a *attempt) NewAddress(addresses []resolver.Address) {
	_ = a.UpdateState(resolver.State{Addresses: addresses})
}

// ParseServiceConfig implements resolver.ClientConn.
func (a *attempt) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: fmt.Errorf("the look-up of %q does not use service configs", a.lookup.name)}
}

// absentTimeout is how long absent waits for DNS.
const absentTimeout = 10 * time.Second

// absent reports whether DNS says that the name does not exist (NXDOMAIN) or has an address of
// neither family (NODATA).
//
// gRPC's resolver does not tell: it reports an empty answer for them, but also where a server refuses to
// answer, and Go's resolver drops a failure of one query if another one succeeds (IPv4 and IPv6,
// the domains of a search list). Endpoints must not be lost for a failure of DNS, so absent asks again,
// with a resolver that reports the failure of any query.
func (l *lookup) absent() bool {
	host, _, err := net.SplitHostPort(l.name)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(l.ctx, absentTimeout)
	defer cancel()
	strict := net.Resolver{PreferGo: true, StrictErrors: true, Dial: net.DefaultResolver.Dial}
	_, err = strict.LookupNetIP(ctx, "ip", host)
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound && !e.IsTemporary && !e.IsTimeout
}
