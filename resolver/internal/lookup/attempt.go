package lookup

import (
	"errors"
	"fmt"
	"net/url"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// run looks the name up once. It reports whether there is an answer with addresses.
func (l *lookup) run() bool {
	a := &attempt{lookup: l, first: make(chan error, 1)}
	target := resolver.Target{URL: url.URL{Scheme: "dns", Path: "/" + l.name}}
	r, err := resolver.Get("dns").Build(target, a, resolver.BuildOptions{DisableServiceConfig: true})
	if err != nil {
		l.answer(nil, err)
		return false
	}
	// No other goroutine calls the resolver: it may call back from within Build, and its
	// Close waits for such a call to return.
	defer r.Close()
	select {
	case err := <-a.first:
		if errors.Is(err, errNoAddress) {
			l.emptied()
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

func (a *attempt) report(addresses []string, err error) {
	a.lookup.answer(addresses, err)
	select {
	case a.first <- err:
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
		a.report(nil, errNoAddress)
		return balancer.ErrBadResolverState
	}
	addresses := make([]string, len(list))
	for i, address := range list {
		addresses[i] = address.Addr
	}
	a.report(addresses, nil)
	return nil
}

// ReportError implements resolver.ClientConn.
func (a *attempt) ReportError(err error) { a.report(nil, err) }

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
